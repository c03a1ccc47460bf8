import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { releaseRestoredSnapshot } from '#src/jobs/release-sources.ts';
import type { Snapshot } from '#src/kube/objects.ts';
import { snapshots } from '#src/kube/resources.ts';
import { createLogger } from '#src/runtime/log.ts';
import type { PlannedRequest } from '#src/volumes/persistent-volume.ts';
import { installCrds } from '../../harness/snapshot-crds.ts';
import { openReleaseRig, type ReleaseRig } from '../release-rig.ts';

const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const FOREIGN = 'snapshot.storage.kubernetes.io/volumesnapshot-bound-protection';

describe('releaseRestoredSnapshot', () => {
  let rig: ReleaseRig;
  let source: NonNullable<PlannedRequest['source']>;
  let lines: string[] = [];
  const log = createLogger({
    name: 'test',
    verbosity: 0,
    format: 'text',
    write: (line) => void lines.push(line),
  });
  const release = (): Promise<void> => releaseRestoredSnapshot(rig.kube, log, source);
  const ref = (): { namespace: string; name: string } => ({
    namespace: source.namespace,
    name: source.name,
  });
  const finalizers = async (): Promise<readonly string[]> =>
    (await rig.kube.get<Snapshot>(snapshots, ref()))?.metadata.finalizers ?? [];

  before(async () => {
    rig = await openReleaseRig();
    await installCrds(rig.kube);
  });
  after(() => rig.close());
  beforeEach(async () => {
    lines = [];
    const namespace = await rig.namespace();
    const { metadata } = await rig.kube.create<Snapshot>(snapshots, namespace, {
      apiVersion: 'snapshot.storage.k8s.io/v1',
      kind: 'VolumeSnapshot',
      metadata: { name: 's', namespace, finalizers: [FOREIGN, OURS] },
      spec: { source: {} },
    });
    source = {
      apiGroup: snapshots.group,
      kind: snapshots.kind,
      namespace,
      name: 's',
      uid: metadata.uid,
      isEchoed: true,
      isReleased: true,
    };
  });
  afterEach(() => rig.cluster.api.faults.clear());

  it('removes only our finalizer, even while another claim is restored (R-14)', async () => {
    const dataSource = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 's' };
    await rig.claim(source.namespace, { name: 'another', dataSource });
    await release();
    assert.deepEqual(await finalizers(), [FOREIGN]);
  });

  it('does nothing if the finalizer is removed or the snapshot is gone', async () => {
    await release();
    rig.cluster.api.requests.reset();
    await release();
    await rig.kube.patch(snapshots, ref(), {
      type: 'merge',
      body: { metadata: { finalizers: [] } },
    });
    await rig.kube.delete(snapshots, ref());
    await release();
    assert.equal(rig.cluster.api.requests.snapshot()['patch volumesnapshots'], 1, 'the test’s own');
    assert.deepEqual(lines, []);
  });

  it('logs nothing if writing snapshots is forbidden', async () => {
    rig.cluster.api.faults.inject({
      action: { kind: 'status', code: 403 },
      verb: 'update',
      plural: 'volumesnapshots',
    });
    await release();
    assert.deepEqual(await finalizers(), [FOREIGN, OURS]);
    assert.deepEqual(lines, []);
  });

  it('logs a warning and leaves it to the sweep if the snapshot changed meanwhile', async () => {
    rig.cluster.api.faults.inject({
      action: { kind: 'status', code: 409 },
      verb: 'update',
      plural: 'volumesnapshots',
    });
    await release();
    assert.deepEqual(await finalizers(), [FOREIGN, OURS]);
    assert.match(lines.join(''), /WARN.*until the next sweep/);
  });
});
