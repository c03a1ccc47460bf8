import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { failWith } from './claim-cases.ts';
import { createOperationCounts } from '#src/jobs/operation-counts.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openRig, type Rig } from './rig.ts';

describe('the metrics of attempts at claims', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

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
  async function countedBy(
    claim: Claim,
    parts: Partial<Dependencies> = {},
  ): Promise<Readonly<Record<string, number>>> {
    await rig.provision(claim, parts);
    return countsOf(claim);
  }
  const edited = ({ metadata: { namespace = '', name } }: Claim, body: object): Promise<Claim> =>
    rig.kube.patch<Claim>(claims, { namespace, name }, { type: 'merge', body });

  it('count a success of the class for a claim that got its volume (P-01, P-17)', async () => {
    assert.deepEqual(await countedBy(await rig.claim()), { provision_total: 1 });
  });

  it('count a failure of the class if the driver refuses (P-10)', async () => {
    failWith(rig, new DriverStatus(Code.Internal, 'no'));
    assert.deepEqual(await countedBy(await rig.claim()), { provision_failed_total: 1 });
  });

  it('count a failure if the class is missing (P-07)', async () => {
    assert.deepEqual(await countedBy(await rig.claim(), { classOf: () => undefined }), {
      provision_failed_total: 1,
    });
  });

  it('count a failure for a claim that is left to a populator (P-14, P-15)', async () => {
    const { spec } = await rig.claim({ className: 'shared' });
    const populated = await rig.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: 'populated', namespace: 'default' },
      spec: {
        ...spec,
        dataSourceRef: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' },
      },
    });
    const annotations = { 'volume.kubernetes.io/storage-provisioner': rig.parts.facts().name };
    assert.deepEqual(await countedBy(await edited(populated, { metadata: { annotations } })), {
      provision_failed_total: 1,
    });
    const plain = await rig.claim({ className: 'shared' });
    assert.deepEqual(await countedBy(plain), { provision_failed_total: 1, provision_total: 1 });
  });

  it('count no claim that names its volume (P-06) or is another provisioner’s (P-01)', async () => {
    const bound = await edited(await rig.claim(), { spec: { volumeName: 'of-another-claim' } });
    assert.deepEqual(await countedBy(bound), {});
    const alien = await edited(await rig.claim(), {
      metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': 'other' } },
    });
    assert.deepEqual(await countedBy(alien), {});
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
