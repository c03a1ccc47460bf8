import assert from 'node:assert/strict';
import perfHooks from 'node:perf_hooks';
import { describe, it } from 'node:test';
import { createRegistry } from '#src/runtime/metrics.ts';

describe('the registry of a process', () => {
  it('starts no timer for the metrics of Node, which would wake an idle process', (t) => {
    const { mock } = t.mock.method(perfHooks, 'monitorEventLoopDelay');
    createRegistry();
    assert.deepEqual(
      mock.calls.map(({ arguments: [options] }) => (options?.resolution ?? 0) > 86_400_000),
      [true],
    );
  });

  it('has the metrics of Node, and none that needs such a timer', async () => {
    const registry = createRegistry();
    const names = (await registry.getMetricsAsJSON()).map(({ name }) => name);
    assert.ok(names.includes('process_cpu_seconds_total'));
    assert.deepEqual(
      names.filter((name) => name.includes('eventloop')),
      ['nodejs_eventloop_lag_seconds'],
    );
  });
});
