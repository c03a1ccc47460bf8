import assert from 'node:assert/strict';
import { it, mock } from 'node:test';
import { OutageLog } from '#src/redis/outage-log.ts';
import { createLogger } from '#src/runtime/log.ts';

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
    outages.away(kept, 'a:1', "Redis at a:1 can't be reached", false);
  };
  lose();
  outages.away(closed, 'a:1', "Redis at a:1 can't be reached", false);
  outages.back(kept, 'a:1');
  outages.forget(closed);
  lose();
  mock.timers.tick(1_000);
  assert.match(lines.join(''), /WARN.*not usable/);
});
