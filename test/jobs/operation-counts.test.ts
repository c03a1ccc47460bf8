import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Claim } from '#src/kube/objects.ts';
import { createOperationCounts } from '#src/jobs/operation-counts.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { SELECTED_NODE, useRig, type Rig } from './rig.ts';

describe('the metrics of attempts at claims', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  /** The values of the class's series, under upstream's names. Missing series are left out. */
  async function countsOf({
    spec: { storageClassName = '' },
  }: Claim): Promise<Readonly<Record<string, number>>> {
    const text = await rig.metrics.metrics();
    const lines = text.matchAll(
      /^controller_persistentvolumeclaim_(provision\w*_total)\{class="([^"]*)",source="[^"]*"\} (\d+)$/gm,
    );
    return Object.fromEntries(
      [...lines].flatMap(([, name = '', cls, value]) =>
        cls === storageClassName ? [[name, Number(value)]] : [],
      ),
    );
  }
  const countedBy = async (claim: Claim, parts: Partial<Dependencies> = {}) => {
    await rig.provision(claim, parts);
    return countsOf(claim);
  };
  const FAILED = { provision_failed_total: 1 };

  it('count a success of the class for a claim that got its volume (P-01, P-17)', async () =>
    assert.deepEqual(await countedBy(await rig.claim()), { provision_total: 1 }));

  it('count a failure of the class if the driver refuses (P-10)', async () => {
    rig.failWith('Internal', 'no');
    assert.deepEqual(await countedBy(await rig.claim()), FAILED);
  });

  it('count a failure if the class is missing, on which the claim parks (P-07, R-04)', async () =>
    assert.deepEqual(await countedBy(await rig.claim(), { classOf: () => undefined }), FAILED));

  it('count a failure for a claim that needs another node', async () => {
    const claim = await rig.claim({ annotations: { [SELECTED_NODE]: 'gone' } });
    assert.deepEqual(await countedBy(claim, rig.withTopology([])), FAILED);
  });

  it('count a failure for a claim that is left to a populator (P-14, P-15)', async () => {
    const dataSourceRef = { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' };
    const className = 'shared';
    assert.deepEqual(
      await countedBy(await rig.claim({ className, spec: { dataSourceRef } })),
      FAILED,
    );
    const plain = await rig.claim({ className });
    assert.deepEqual(await countedBy(plain), { ...FAILED, provision_total: 1 });
  });

  it('count no claim that names its volume (P-06) or is another provisioner’s (P-01)', async () => {
    const bound = await rig.claim({ spec: { volumeName: 'of-another-claim' } });
    assert.deepEqual(await countedBy(bound), {});
    const annotations = { 'volume.kubernetes.io/storage-provisioner': 'other' };
    assert.deepEqual(await countedBy(await rig.claim({ annotations })), {});
  });
});

describe('the time from the creation of a claim, which the API server gives in seconds, to its volume', () => {
  const createdMs = Date.UTC(2026, 0, 1);
  const metadata = { creationTimestamp: '2026-01-01T00:00:00Z' };
  /** Of a claim whose job was added so long after the second of its creation, and whose volume was
   * written 100 ms later. */
  const toldMs = async (queuedAfterMs: number): Promise<number> => {
    const registry = new Registry();
    const queuedMs = createdMs + queuedAfterMs;
    const claim = { metadata, spec: {} } as Claim;
    const times = { tookMs: 0, queuedMs, endMs: queuedMs + 100 };
    createOperationCounts(registry).countProvisioned(claim, times);
    const sum = /created_to_volume_seconds_sum\{class=""\} (\S+)/.exec(await registry.metrics());
    return Math.round(Number(sum?.[1]) * 1_000);
  };

  it('begins with its job, where that was added in the same second', async () =>
    assert.equal(await toldMs(400), 100));

  it('begins a little before the end of that second, where its job was added a little after', async () =>
    assert.equal(await toldMs(1_020), 100 + 40));

  it('begins in the middle of that second, where its job was added much later', async () =>
    assert.equal(await toldMs(9_000), 100 + 8_500));
});
