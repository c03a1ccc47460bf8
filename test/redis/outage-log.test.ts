import assert from 'node:assert/strict';
import { it } from 'node:test';
import { createLogger } from '#src/runtime/log.ts';
import { OutageLog } from '#src/redis/outage-log.ts';

it('an outage is logged after a connection was closed during the one before', () => {
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
  outages.back(kept, 'a:1', false);
  outages.forget(closed);
  lose();
  assert.match(lines.join(''), /WARN.*not usable/);
});
