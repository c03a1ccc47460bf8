import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { reconcileSnapshot, sourceId } from '#src/jobs/release-sources.ts';
import { runToOutcome } from '#src/jobs/start-workers.ts';
import type { Snapshot } from '#src/kube/objects.ts';
import { snapshots } from '#src/kube/resources.ts';
import type { JobKey } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { silentLog } from '#src/runtime/log.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { installCrds, removeCrds } from '../../harness/snapshot-crds.ts';
import { group, type Parts } from '../parts.ts';
import { openReleaseRig, type ReleaseRig } from '../release-rig.ts';

const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const FOREIGN = 'snapshot.storage.kubernetes.io/volumesnapshot-bound-protection';
const GROUP = 'snapshot.storage.k8s.io';
const NAME = 's';
const restoring = { dataSource: { apiGroup: GROUP, kind: 'VolumeSnapshot', name: NAME } };

describe('reconcileSnapshot', () => {
  let rig: ReleaseRig;
  let namespace = '';
  before(async () => {
    rig = await openReleaseRig();
    await installCrds(rig.kube);
  });
  after(() => rig.close());
  beforeEach(async () => {
    namespace = await rig.namespace();
    rig.openSources = new Set();
  });
  afterEach(() => rig.cluster.api.faults.clear());

  const snapshot = (finalizers: readonly string[] = [OURS]): Promise<Snapshot> =>
    rig.kube.create<Snapshot>(snapshots, namespace, {
      apiVersion: `${GROUP}/v1`,
      kind: 'VolumeSnapshot',
      metadata: { name: NAME, namespace, finalizers },
      spec: { source: { persistentVolumeClaimName: 'c' }, unknownField: { kept: true } },
    });
  const current = (): Promise<Snapshot | undefined> =>
    rig.kube.get<Snapshot>(snapshots, { namespace, name: NAME });
  const finalizers = async (): Promise<readonly string[]> =>
    (await current())?.metadata.finalizers ?? [];
  const deps = (change: Partial<Parts> = {}) => group({ ...rig.parts, ...change } as Parts);
  const run = ({ metadata }: Snapshot): Promise<Outcome> => {
    const key: JobKey = { kind: 'snapshot', uid: metadata.uid, namespace, name: NAME };
    return runToOutcome(key, silentLog, () => reconcileSnapshot(deps(), key));
  };
  const fault = (code: number, verb: 'get' | 'patch'): void =>
    void rig.cluster.api.faults.inject({
      action: { kind: 'status', code },
      verb,
      plural: 'volumesnapshots',
      times: Infinity,
    });

  it('removes only our finalizer if the only restore is Bound (L-01)', async () => {
    await rig.claim(namespace, { name: 'a', phase: 'Bound', ...restoring });
    const before = await snapshot([FOREIGN, OURS]);
    assert.equal((await run(before)).kind, 'done');
    const { metadata, ...rest } = (await current()) ?? before;
    assert.deepEqual(metadata.finalizers, [FOREIGN]);
    assert.deepEqual(rest.spec, before.spec);
  });

  it('keeps the finalizer while a claim that is restored is Pending (L-02)', async () => {
    await rig.claim(namespace, { name: 'a', ...restoring });
    assert.equal((await run(await snapshot())).kind, 'done');
    assert.deepEqual(await finalizers(), [OURS]);
  });

  it('removes the finalizer if nothing is restored (L-03)', async () => {
    assert.equal((await run(await snapshot())).kind, 'done');
    assert.deepEqual(await finalizers(), []);
  });

  it('keeps the finalizer while one of two claims is Pending (L-04)', async () => {
    await rig.claim(namespace, { name: 'a', phase: 'Bound', ...restoring });
    await rig.claim(namespace, { name: 'b', ...restoring });
    await run(await snapshot());
    assert.deepEqual(await finalizers(), [OURS]);
  });

  it('writes no snapshot that has only foreign finalizers (L-07)', async () => {
    const found = await snapshot([FOREIGN]);
    rig.cluster.api.requests.reset();
    assert.equal((await run(found)).kind, 'done');
    assert.deepEqual(rig.cluster.api.requests.snapshot(), { 'get volumesnapshots': 1 });
    assert.deepEqual(await finalizers(), [FOREIGN]);
  });

  it('keeps the finalizer for a Pending claim with only a dataSourceRef (L-16)', async () => {
    const { dataSource: dataSourceRef } = restoring;
    await rig.claim(namespace, { name: 'a', dataSourceRef: { ...dataSourceRef, namespace } });
    await run(await snapshot());
    assert.deepEqual(await finalizers(), [OURS]);
  });

  it('ignores claims that refer to a snapshot of that name in another namespace', async () => {
    const { dataSource: dataSourceRef } = restoring;
    await rig.claim(namespace, {
      name: 'a',
      dataSourceRef: { ...dataSourceRef, namespace: 'elsewhere' },
    });
    await run(await snapshot());
    assert.deepEqual(await finalizers(), []);
  });

  it('keeps the finalizer while a claim in the journal names the snapshot', async () => {
    const found = await snapshot();
    rig.openSources = new Set([sourceId(snapshots, found.metadata)]);
    assert.equal((await run(found)).kind, 'done');
    assert.deepEqual(await finalizers(), [OURS]);
  });

  it('keeps the finalizer and is repeated while the journal can’t be read', async () => {
    const found = await snapshot();
    rig.openSources = undefined;
    assert.equal((await run(found)).kind, 'later');
    assert.deepEqual(await finalizers(), [OURS]);
  });

  it('removes the last finalizer of a snapshot that is being deleted', async () => {
    const found = await snapshot();
    await rig.kube.delete(snapshots, { namespace, name: NAME });
    await run(found);
    assert.equal(await current(), undefined);
  });

  it('leaves another snapshot of the same name alone', async () => {
    const first = await snapshot([]);
    await rig.kube.delete(snapshots, { namespace, name: NAME });
    await snapshot();
    assert.equal((await run(first)).kind, 'done');
    assert.deepEqual(await finalizers(), [OURS]);
  });

  for (const [what, code] of [
    ['changed meanwhile', 409],
    ['may not be written', 403],
    ['is gone meanwhile', 404],
  ] as const) {
    it(`leaves a snapshot that ${what} to the next sweep`, async () => {
      const found = await snapshot();
      fault(code, 'patch');
      assert.equal((await run(found)).kind, 'done');
    });
  }

  const keyOfJob = ({ metadata }: Snapshot): JobKey => ({
    kind: 'snapshot',
    uid: metadata.uid,
    namespace,
    name: NAME,
  });

  it('reads the claims of all namespaces if they may refer to it (L-15)', async () => {
    const far = await rig.namespace();
    const found = await snapshot();
    const { apiGroup, kind } = restoring.dataSource;
    await rig.claim(far, { name: 'far', dataSourceRef: { apiGroup, kind, name: NAME, namespace } });
    const gates = { ...DEFAULT_GATES, CrossNamespaceVolumeDataSource: true };
    const crossing = deps({ options: { ...rig.parts.options, gates } });
    assert.equal((await reconcileSnapshot(crossing, keyOfJob(found))).kind, 'done');
    assert.deepEqual(await finalizers(), [OURS]);
  });

  it('adds the finalizer again if a restore began between the read and the update', async () => {
    const found = await snapshot([FOREIGN, OURS]);
    const update: typeof rig.kube.update = async (resource, ref, object) => {
      rig.openSources = new Set([sourceId(snapshots, found.metadata)]);
      return rig.kube.update(resource, ref, object);
    };
    await reconcileSnapshot(deps({ kube: { ...rig.kube, update } }), keyOfJob(found));
    assert.deepEqual(await finalizers(), [FOREIGN, OURS]);
  });

  it('does not overwrite a change that came between the read and the update', async () => {
    const found = await snapshot();
    const update: typeof rig.kube.update = async (resource, ref, object) => {
      await rig.kube.patch(snapshots, ref, {
        type: 'merge',
        body: { metadata: { finalizers: [OURS, FOREIGN] } },
      });
      return rig.kube.update(resource, ref, object);
    };
    assert.equal(
      (await reconcileSnapshot(deps({ kube: { ...rig.kube, update } }), keyOfJob(found))).kind,
      'done',
    );
    assert.deepEqual(await finalizers(), [OURS, FOREIGN]);
  });

  it('is repeated while the API server is down', async () => {
    const found = await snapshot();
    fault(500, 'get');
    assert.equal((await run(found)).kind, 'later');
  });

  it('is done if snapshots are not installed any more', async () => {
    const found = await snapshot([]);
    await removeCrds(rig.kube);
    assert.equal((await run(found)).kind, 'done');
    await installCrds(rig.kube);
  });
});
