import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  type DriverContext,
  DriverSet,
  type DriverSetOptions,
} from '#src/driver-config/driver-set.ts';
import type { DriverConfig, FlagValues } from '#src/driver-config/read-config.ts';
import { Closers } from '#src/runtime/closers.ts';
import { defineFlags, perDriver, UsageError } from '#src/runtime/flags.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { silentLog } from '#src/runtime/log.ts';
import { metricsIn, Registry } from '#src/runtime/metrics.ts';
import { until } from '../harness/until.ts';

const table = defineFlags({
  'http-endpoint': { type: 'string', default: '', help: '' },
  ...perDriver({
    timeout: { type: 'durationMs', default: '10s', help: '' },
    limit: { type: 'int', default: 0, isHot: true, help: '' },
  }),
});
type Context = DriverContext<typeof table>;

function config(sections: Readonly<Record<string, FlagValues>>): DriverConfig {
  return new Map(Object.entries(sections).map(([name, values]) => [name, { name, values }]));
}

function open(start: DriverSetOptions<typeof table>['start']) {
  const parsed = parseFlags(table, { argv: ['--timeout=5s'], env: {} });
  assert.ok(parsed.kind === 'run');
  const health = new HealthChecks();
  const metrics = new Registry();
  const drivers = new DriverSet({
    context: {
      flags: parsed.flags,
      env: {},
      pid: 1,
      stdout: { write: () => undefined },
      stderr: { write: () => undefined },
      argv: [],
      words: [],
      given: new Map(),
      known: table,
      log: silentLog,
      metrics,
      health,
      closers: new Closers(),
      stopping: new AbortController().signal,
      announce: () => undefined,
      stop: () => undefined,
    },
    table,
    start,
    retryMs: 10,
  });
  const page = (): string => health.answer('ready', '').text;
  return { drivers, metrics, page };
}

describe('DriverSet', () => {
  it('starts a driver again until it can be started, and the others meanwhile', async () => {
    const starts: string[] = [];
    const { drivers, page } = open(({ health }, name) => {
      starts.push(name);
      if (name === 'a' && starts.filter((each) => each === 'a').length < 3)
        return Promise.reject(new UsageError('a file is missing'));
      health.ready('driver', () => undefined);
      return Promise.resolve();
    });
    drivers.apply(config({ a: {}, b: {} }));
    await until(() => /^\[-\]a\/driver: .*a file is missing; trying again$/m.test(page()), 'shown');
    await until(() => /^\[\+\]a\/driver ok$/m.test(page()), 'started');
    assert.deepEqual(starts.toSorted(), ['a', 'a', 'a', 'b']);
    await drivers.close();
  });

  it('gives each driver its own values, and those of the process for the rest', async () => {
    const seen: unknown[] = [];
    const { drivers } = open(({ flags }, name) => {
      seen.push([name, flags.timeoutMs, flags.limit]);
      return Promise.resolve();
    });
    drivers.apply(config({ a: { timeoutMs: 1_000, unknown: 1 }, b: { limit: 3 } }));
    await until(() => seen.length === 2, 'both started');
    assert.deepEqual(seen, [
      ['a', 1_000, 0],
      ['b', 5_000, 3],
    ]);
    await drivers.close();
  });

  it('ends a driver before it begins anew with other values', async () => {
    const steps: string[] = [];
    const { drivers } = open(({ flags, closers }) => {
      steps.push(`begin ${flags.timeoutMs}`);
      closers.add('part', async () => {
        await new Promise((resolve) => setTimeout(resolve, 50));
        steps.push(`end ${flags.timeoutMs}`);
      });
      return Promise.resolve();
    });
    drivers.apply(config({ a: { timeoutMs: 1 } }));
    await until(() => steps.length === 1, 'begun');
    drivers.apply(config({ a: { timeoutMs: 2 } }));
    drivers.apply(config({ a: { timeoutMs: 3 } }));
    await until(() => steps.includes('begin 3'), 'begun anew');
    await drivers.close();
    assert.deepEqual(steps, ['begin 1', 'end 1', 'begin 3', 'end 3']);
  });

  it('passes hot values on without a restart, also before anybody asks for changes', async () => {
    const contexts: Context[] = [];
    const { drivers } = open((context) => {
      contexts.push(context);
      return Promise.resolve();
    });
    drivers.apply(config({ a: {} }));
    await until(() => contexts.length === 1, 'begun');
    const [context] = contexts;
    assert.ok(context !== undefined);
    drivers.apply(config({ a: { limit: 4 } }));
    assert.equal(context.flags.limit, 4);
    const seen: number[] = [];
    context.flagChanges?.subscribe(({ limit }) => seen.push(limit));
    drivers.apply(config({ a: { limit: 5 } }));
    drivers.apply(config({ a: {} }));
    assert.deepEqual(seen, [5, 0]);
    assert.equal(contexts.length, 1);
    await drivers.close();
  });

  it('removes checks and gauges with a driver, and keeps counters', async () => {
    const { drivers, metrics, page } = open((context, driver) => {
      metricsIn(context.metrics).gauge('g', 'G.', ['driver', 'kind']).set({ driver, kind: 'x' }, 1);
      metricsIn(context.metrics).counter('c', 'C.', ['driver']).inc({ driver });
      return Promise.resolve();
    });
    drivers.apply(config({ a: {}, b: {} }));
    await until(async () => (await metrics.metrics()).includes('g{driver="a"'), 'begun');
    drivers.apply(config({ b: {} }));
    await until(async () => !(await metrics.metrics()).includes('g{driver="a"'), 'removed');
    assert.doesNotMatch(page(), /a\/driver/);
    assert.match(await metrics.metrics(), /c\{driver="a"\} 1[^]*c\{driver="b"\} 1/);
    assert.match(await metrics.metrics(), /g\{driver="b"/);
    await drivers.close();
  });

  it('is not ready before a driver is', async () => {
    const { drivers, page } = open(({ stopping }) => {
      return new Promise((resolve) => stopping.addEventListener('abort', () => resolve()));
    });
    drivers.apply(config({ a: {} }));
    await until(() => page().includes('a/driver'), 'shown');
    assert.match(page(), /not started yet\nnot ok/);
    await drivers.close();
  });
});
