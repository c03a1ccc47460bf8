import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { serveDrivers } from '#src/driver-config/driver-set.ts';
import { Closers } from '#src/runtime/closers.ts';
import { defineFlags, UsageError } from '#src/runtime/flags.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { until } from '../harness/until.ts';

const table = defineFlags({ timeout: { type: 'durationMs', default: '10s', help: '' } });
type Start = Parameters<typeof serveDrivers<typeof table>>[2];

/** Serves drivers with these timeouts. */
function open(timeouts: Readonly<Record<string, number>>, start: Start) {
  const health = new HealthChecks();
  const closers = new Closers();
  const stop = new AbortController();
  const config = Object.entries(timeouts).map(
    ([name, timeoutMs]) => [name, { timeoutMs }] as const,
  );
  serveDrivers(
    {
      flags: { timeoutMs: 10_000 },
      env: {},
      pid: 1,
      stdout: { write: () => undefined },
      stderr: { write: () => undefined },
      argv: [],
      words: [],
      given: new Map(),
      known: table,
      log: silentLog,
      metrics: new Registry(),
      health,
      closers,
      stopping: stop.signal,
      announce: () => undefined,
      stop: () => undefined,
    },
    new Map(config),
    start,
    10,
  );
  return {
    page: (): string => health.answer('ready', '').text,
    close: async (): Promise<void> => {
      stop.abort();
      assert.deepEqual(await closers.close(), []);
    },
  };
}

describe('serveDrivers', () => {
  it('starts a driver again until it can be started, and the others meanwhile', async () => {
    const starts: string[] = [];
    const { page, close } = open({ a: 1, b: 2 }, ({ health }, name) => {
      starts.push(name);
      if (name === 'a' && starts.filter((each) => each === 'a').length < 3)
        return Promise.reject(new UsageError('a file is missing'));
      health.ready('driver', () => undefined);
      return Promise.resolve();
    });
    await until(() => /^\[-\]a\/driver: .*a file is missing; trying again$/m.test(page()), 'shown');
    await until(() => /^\[\+\]a\/driver ok$/m.test(page()), 'started');
    assert.deepEqual(starts.toSorted(), ['a', 'a', 'a', 'b']);
    await close();
  });

  it('closes what a failed start has opened', async () => {
    let opened = 0;
    let most = 0;
    const { close } = open({ a: 1 }, ({ closers }) => {
      opened += 1;
      most = Math.max(most, opened);
      closers.add('part', () => void (opened -= 1));
      return Promise.reject(new Error('failed'));
    });
    await close();
    assert.deepEqual([opened, most], [0, 1]);
  });

  it('says that there is nothing to do, for a file without drivers', async () => {
    const { page, close } = open({}, () => Promise.resolve());
    assert.match(
      page(),
      /^\[!\]driver-config: the file names no driver: there is nothing to do\nok/,
    );
    await close();
  });
});
