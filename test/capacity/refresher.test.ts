import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { capacityMetrics } from '#src/capacity/metrics.ts';
import { CapacityRefresher } from '#src/capacity/refresher.ts';
import type { Class, StorageCapacity } from '#src/kube/objects.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { until } from '../harness/until.ts';

describe('the refresher of storage capacity', () => {
  it('remembers no deleted object while another ingest leads', async (t) => {
    let isAllowing = false;
    let nowMs = 0;
    let steps = 0;
    const queued: string[] = [];
    const refresher = new CapacityRefresher({
      manager: { driver: 'd.example', managedBy: 'external-provisioner' },
      includesImmediate: false,
      nodes: {
        csiNodes: () => [{ name: 'n', topologyKeys: [] }],
        node: (name) => ({ name, labels: {} }),
      },
      classes: (): Iterable<Class> => [
        {
          metadata: { name: 'c', uid: 'c', resourceVersion: '1' },
          provisioner: 'd.example',
          volumeBindingMode: 'WaitForFirstConsumer',
        },
      ],
      objects: { list: () => [] },
      hints: { take: () => Promise.resolve([]) },
      readTimes: { agesMs: () => Promise.resolve(new Map()), forget: () => Promise.resolve() },
      queue: {
        get isAllowing() {
          steps += 1;
          return isAllowing;
        },
        ensureQueued: (key) => isAllowing && queued.push(key.uid),
      },
      pollMs: 3_600_000,
      stepMs: 5,
      metrics: capacityMetrics(new Registry(), 'a.example.com'),
      clock: { ...systemClock, nowMs: () => nowMs },
      log: silentLog,
    });
    t.after(() => refresher.stop());
    const nextSteps = async (): Promise<void> => {
      const before = steps;
      await until(() => steps > before + 3, 'some steps');
    };
    await nextSteps();
    const object = {
      metadata: { name: 'csisc-1', uid: 'o', resourceVersion: '1' },
      storageClassName: 'c',
      nodeTopology: {},
    } as StorageCapacity;
    for (let i = 0; i < 50; i += 1) refresher.objectChanged({ type: 'deleted', object });
    isAllowing = true;
    nowMs = 10_000;
    await nextSteps();
    assert.equal(queued.length, 1, 'the value, as this ingest begins to lead');
  });
});
