import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import {
  KubeLeaseStore,
  type KubeLeaseStoreOptions,
  type LeaseStore,
} from '#src/election/kube-lease-store.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

describe('KubeLeaseStore', () => {
  let cluster: SandboxCluster;
  let client: KubeClient;
  let store: LeaseStore;
  let name = 'lease-0';
  let serial = 0;
  const { signal } = new AbortController();
  const record = {
    holder: 'me',
    durationMs: 15_000,
    acquiredMs: 1_700_000_000_000,
    renewedMs: 1_700_000_000_123,
    transitions: 0,
  };
  const open = (o: Partial<KubeLeaseStoreOptions> = {}): LeaseStore =>
    new KubeLeaseStore({ client, namespace: 'default', name, log: silentLog, ...o });
  const stored = async (): Promise<Lease> => {
    const lease = await client.get<Lease>(leases, { namespace: 'default', name });
    assert.ok(lease);
    return lease;
  };

  before(async () => {
    cluster = await openSandboxCluster();
    client = await cluster.client();
  });
  after(() => cluster.close());
  beforeEach(() => {
    serial += 1;
    name = `lease-${serial}`;
    store = open();
  });

  it('finds no Lease, creates one, and refuses to create it twice or replace an old version', async () => {
    assert.equal(await store.get(signal), undefined);
    const first = await store.write(record, undefined, signal);
    assert.deepEqual(first?.record, record);
    assert.equal(await store.write(record, undefined, signal), undefined);
    assert.deepEqual((await store.get(signal))?.record, record);
    const second = await store.write({ ...record, transitions: 1 }, first, signal);
    assert.equal(second?.record.transitions, 1);
    assert.equal(await store.write({ ...record, transitions: 2 }, first, signal), undefined);
    assert.equal((await stored()).spec?.leaseTransitions, 1);
  });

  it('writes times with six fraction digits and durations in whole seconds', async () => {
    await store.write({ ...record, durationMs: 15_900 }, undefined, signal);
    assert.deepEqual((await stored()).spec, {
      holderIdentity: 'me',
      leaseDurationSeconds: 15,
      acquireTime: '2023-11-14T22:13:20.000000Z',
      renewTime: '2023-11-14T22:13:20.123000Z',
      leaseTransitions: 0,
    });
  });

  it('merges its labels at every write and keeps what other writers wrote', async () => {
    store = open({ labels: { team: 'storage' } });
    await store.write(record, undefined, signal);
    assert.deepEqual((await stored()).metadata.labels, { team: 'storage' });
    const body = {
      metadata: { labels: { team: 'x', foreign: 'y' }, annotations: { note: 'kept' } },
      spec: { strategy: 'OldestEmulationVersion' },
    };
    await client.patch(leases, { namespace: 'default', name }, { type: 'merge', body });
    const current = await store.get(signal);
    assert.ok(current);
    await store.write({ ...record, transitions: 1 }, current, signal);
    const { metadata, spec } = await stored();
    assert.deepEqual(metadata.labels, { team: 'storage', foreign: 'y' });
    assert.equal(metadata.annotations?.note, 'kept');
    assert.equal((spec as { strategy?: string }).strategy, 'OldestEmulationVersion');
  });

  it('creates a Lease that was deleted with the annotations last seen', async () => {
    const annotations = { note: 'kept' };
    await client.create<Lease>(leases, 'default', { metadata: { name, annotations } });
    const end = store.watch(() => undefined);
    await store.get(signal);
    await client.delete(leases, { namespace: 'default', name });
    await store.write(record, undefined, signal);
    assert.deepEqual((await stored()).metadata.annotations, { note: 'kept' });
    end();
  });

  it('writes its annotations when it takes the Lease and renews it, and keeps them at a release', async () => {
    store = open({ annotations: ({ renewedMs }) => ({ written: String(renewedMs) }) });
    let current = await store.write({ ...record, holder: 'other' }, undefined, signal);
    const written: (string | undefined)[] = [];
    for (const [renewedMs, holder] of ['me', 'me', ''].entries()) {
      assert.ok(current);
      current = await store.write({ ...record, holder, renewedMs }, current, signal);
      written.push((await stored()).metadata.annotations?.['written']);
    }
    assert.deepEqual(written, ['0', '1', '1']);
  });

  it('reads a Lease without a spec as free', async () => {
    await client.create(leases, 'default', { metadata: { name } });
    const free = { holder: '', durationMs: 0, acquiredMs: 0, renewedMs: 0, transitions: 0 };
    assert.deepEqual((await store.get(signal))?.record, free);
  });

  it('reports changes, also after its watch was cut, and the deletion', async () => {
    const seen: (string | undefined)[] = [];
    const end = store.watch((lease) => seen.push(lease?.record.holder));
    await until(() => cluster.api.watchCount('leases') === 1, 'the watch');
    const first = await store.write(record, undefined, signal);
    assert.ok(first);
    await until(() => seen.at(-1) === 'me', 'the creation');
    cluster.api.stopWatches('cut', 'leases');
    const second = await store.write({ ...record, holder: 'you' }, first, signal);
    await until(() => seen.at(-1) === 'you', 'the change');
    cluster.api.stopWatches('expire', 'leases');
    await store.write({ ...record, holder: 'they' }, second ?? first, signal);
    await until(() => seen.at(-1) === 'they', 'the change after 410');
    await client.delete(leases, { namespace: 'default', name });
    await until(() => seen.length > 3 && seen.at(-1) === undefined, 'the deletion');
    assert.deepEqual(seen, ['me', 'you', 'they', undefined]);
    end();
    await until(() => cluster.api.watchCount('leases') === 0, 'the watch is gone');
  });
});
