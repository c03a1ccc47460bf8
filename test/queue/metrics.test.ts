import assert from 'node:assert/strict';
import { it } from 'node:test';
import { JOB_KINDS } from '#src/queue/contract.ts';
import { consumerMetrics, producerMetrics } from '#src/queue/metrics.ts';
import { workqueueMetrics } from '#src/queue/workqueue-metrics.ts';
import { createRegistry } from '#src/runtime/metrics.ts';

it('counters of queues are there, at 0, before anything is counted', async () => {
  const registry = createRegistry();
  const [driver, kind] = ['d.example', 'claim'] as const;
  producerMetrics(registry, { driver, dirty: () => 0 });
  consumerMetrics(registry, { driver, kind }, { inFlight: () => 0, isIdle: () => false });
  workqueueMetrics(registry, kind).close();
  const metrics = await registry.getMetricsAsJSON();
  const counters = metrics.filter(
    ({ name, type }) => String(type) === 'counter' && /^(sutler_queue|workqueue)/.test(name),
  );
  assert.ok(counters.length >= 9, `${counters.length} counters`);
  for (const { name, values } of counters) {
    assert.deepEqual([...new Set(values.map(({ value }) => value))], [0], name);
    assert.ok([1, JOB_KINDS.length, 5].includes(values.length), name);
  }
});
