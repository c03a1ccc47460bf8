import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { createLogger } from '#src/runtime/log.ts';
import { Outage } from '#src/runtime/outage.ts';

describe('an outage', () => {
  let lines: string[];
  let outage: Outage;
  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1 });
    lines = [];
    const write = (line: string): void => {
      const { level, msg, why, lastedMs } = JSON.parse(line) as Readonly<Record<string, unknown>>;
      lines.push([level, msg, why ?? lastedMs ?? ''].map(String).join(' ').trim());
    };
    outage = new Outage(createLogger({ name: 'test', verbosity: 5, format: 'json', write }));
  });
  afterEach(() => mock.timers.reset());
  const met = (why: string): void => outage.met(why, { why }, 'away');
  const ended = (isNews = false): void => outage.ended({}, 'back', isNews);

  it('that ends within a second is logged at debug level', () => {
    met('refused');
    mock.timers.tick(999);
    ended();
    mock.timers.tick(5_000);
    assert.deepEqual(lines, ['debug away refused', 'debug back 999']);
  });

  it('that lasts is warned of once, and its end is told with its length', () => {
    for (const atMs of [0, 500, 1_000, 1_500]) {
      met('refused');
      mock.timers.tick(500);
      assert.equal(lines.includes('warn away refused'), atMs >= 500);
    }
    ended();
    assert.deepEqual(lines, ['debug away refused', 'warn away refused', 'info back 2000']);
  });

  it('is warned of again for another reason, whatever numbers are in it', () => {
    met('no answer in 5 s');
    mock.timers.tick(1_000);
    for (const reason of ['no answer in 6 s', 'refused', 'no answer in 7 s']) met(reason);
    assert.deepEqual(lines.slice(1), ['warn away no answer in 5 s', 'warn away refused']);
  });

  it('whose reason changes within its first second is warned of by the last one', () => {
    met('lost');
    met('refused');
    mock.timers.tick(1_000);
    assert.deepEqual(lines.slice(2), ['warn away refused']);
  });
});
