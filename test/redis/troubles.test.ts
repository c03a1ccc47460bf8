import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { Command } from 'ioredis';
import { Denials, OutageLog, Refusals } from '#src/redis/troubles.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';

describe('a denial of Redis', () => {
  const send = () => {
    const refusals = new Refusals('localhost:6379', undefined, silentLog);
    const denials = new Denials('sutler-jobs', refusals);
    const deny = (): void => {
      const command = new Command('hget', ['{csi}:volume:d:u1', 'state'], {
        replyEncoding: 'utf8',
      });
      denials.watch(command);
      command.promise.catch(() => undefined);
      command.reject(new Error('NOPERM this user has no permissions'));
    };
    return { refusals, deny };
  };

  it('ends 35 s after the last, because a command may not come again', (t) => {
    mock.timers.enable({ apis: ['setTimeout'] });
    t.after(() => mock.timers.reset());
    const { refusals, deny } = send();
    deny();
    mock.timers.tick(30_000);
    deny();
    mock.timers.tick(34_999);
    assert.notEqual(refusals.line, undefined);
    mock.timers.tick(1);
    assert.equal(refusals.line, undefined);
  });
});

it('an outage is logged after a connection was closed during the one before', (t) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.after(() => mock.timers.reset());
  const lines: string[] = [];
  const outages = new OutageLog(
    createLogger({ name: 'test', verbosity: 0, format: 'text', write: (line) => lines.push(line) }),
  );
  const [kept, closed] = [{}, {}];
  const lose = (): void => {
    lines.length = 0;
    outages.away(kept, 'a:1', "Redis at a:1 can't be reached");
  };
  lose();
  outages.away(closed, 'a:1', "Redis at a:1 can't be reached");
  outages.back(kept, 'a:1');
  outages.forget(closed);
  lose();
  mock.timers.tick(1_000);
  assert.match(lines.join(''), /WARN.*not usable/);
});
