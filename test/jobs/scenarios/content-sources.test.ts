import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { CreateVolumeRequest, DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import {
  CLONE_PROTECTION,
  SNAPSHOT_SOURCE_PROTECTION,
  STORAGE_PROVISIONER,
} from '#src/kube/keys.ts';
import type {
  Claim,
  ClaimSpec,
  ReferenceGrant,
  Snapshot,
  SnapshotContent,
  Volume,
} from '#src/kube/objects.ts';
import { claims, referenceGrants, snapshotContents, snapshots } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import {
  installCrds,
  referenceGrantCrd,
  removeCrds,
  snapshotCrds,
} from '../../harness/snapshot-crds.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const SIZE = '1Mi';
const SIZE_BYTES = 2n ** 20n;

describe('reconcileClaim, with a content source', () => {
  let rig: Rig;
  let parts: Partial<Dependencies>;
  let names = 0;
  before(async () => {
    rig = await openRig();
    parts = {
      facts: () => ({
        name: DRIVER,
        pluginCapabilities: new Set(['CONTROLLER_SERVICE']),
        controllerCapabilities: new Set([
          'CREATE_DELETE_VOLUME',
          'CREATE_DELETE_SNAPSHOT',
          'CLONE_VOLUME',
          'MODIFY_VOLUME',
        ]),
      }),
    };
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const unique = (prefix: string): string => `${prefix}-${(names += 1)}`;
  const creates = () => rig.driver.calls.filter(({ method }) => method === 'CreateVolume');
  const deletes = () => rig.driver.calls.filter(({ method }) => method === 'DeleteVolume');
  const requests = () => creates().map(({ request }) => request as CreateVolumeRequest);
  /** The driver creates the volume and names its source in the answer, as CSI requires. */
  const answerWithSource = () => {
    rig.onCall = ({ method, request }) => {
      if (method !== 'CreateVolume') return undefined;
      const { name, volumeContentSource } = request as CreateVolumeRequest;
      return {
        volume: {
          volumeId: `handle-of-${name}`,
          capacityBytes: SIZE_BYTES,
          contentSource: volumeContentSource,
        },
      };
    };
  };
  async function claimOf(spec: Partial<ClaimSpec>, namespace = 'default'): Promise<Claim> {
    const { spec: plain } = await rig.claim({ className: 'of-sources' });
    return rig.kube.create<Claim>(claims, namespace, {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: {
        name: unique('filled'),
        namespace,
        annotations: { [STORAGE_PROVISIONER]: DRIVER },
      },
      spec: { ...plain, ...spec },
    });
  }
  /** Creates a snapshot, by default ready to use, and its content. */
  async function snapshotOf(
    given: { namespace?: string; ready?: boolean } = {},
  ): Promise<Snapshot> {
    const { namespace = 'default', ready = true } = given;
    const name = unique('snapshot');
    const snapshot = await rig.kube.create<Snapshot>(snapshots, namespace, {
      apiVersion: 'snapshot.storage.k8s.io/v1',
      kind: 'VolumeSnapshot',
      metadata: { name, namespace },
      spec: { source: { persistentVolumeClaimName: 'once' }, fromTheFuture: { kept: true } },
    });
    const content = `content-${name}`;
    await rig.kube.create<SnapshotContent>(snapshotContents, undefined, {
      apiVersion: 'snapshot.storage.k8s.io/v1',
      kind: 'VolumeSnapshotContent',
      metadata: { name: content },
      spec: {
        driver: DRIVER,
        deletionPolicy: 'Delete',
        volumeSnapshotRef: { name, namespace, uid: snapshot.metadata.uid },
      },
    });
    await rig.kube.patch(
      snapshotContents,
      { name: content },
      {
        type: 'merge',
        subresource: 'status',
        body: { status: { snapshotHandle: `handle-of-${name}`, readyToUse: true } },
      },
    );
    const status = {
      boundVolumeSnapshotContentName: content,
      readyToUse: ready,
      restoreSize: SIZE,
    };
    return rig.kube.patch<Snapshot>(
      snapshots,
      { namespace, name },
      { type: 'merge', subresource: 'status', body: { status } },
    );
  }
  const restoring = ({ metadata: { name } }: Snapshot): Partial<ClaimSpec> => ({
    dataSource: { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name },
  });
  const readSnapshot = ({ metadata: { namespace = '', name } }: Snapshot) =>
    rig.kube.get<Snapshot>(snapshots, { namespace, name });
  /** Creates a claim that is bound to its volume. */
  async function boundClaim(): Promise<{ claim: Claim; volume: Volume }> {
    const { metadata } = await rig.claim({ className: 'of-sources' });
    const namespace = metadata.namespace ?? '';
    const fresh = await rig.kube.get<Claim>(claims, { namespace, name: metadata.name });
    assert.ok(fresh);
    assert.equal((await rig.provision(fresh, parts)).kind, 'done');
    const created = await rig.volumeOf(fresh);
    assert.ok(created);
    const volume = await rig.setPhase(created, 'Bound');
    await rig.kube.patch(
      claims,
      { namespace, name: metadata.name },
      { type: 'merge', body: { spec: { volumeName: volume.metadata.name } } },
    );
    const claim = await rig.kube.patch<Claim>(
      claims,
      { namespace, name: metadata.name },
      { type: 'merge', subresource: 'status', body: { status: { phase: 'Bound' } } },
    );
    await rig.reset();
    return { claim, volume };
  }
  const cloning = ({ metadata: { name } }: Claim): Partial<ClaimSpec> => ({
    dataSource: { kind: 'PersistentVolumeClaim', name },
  });
  const readClaim = ({ metadata: { namespace = '', name } }: Claim) =>
    rig.kube.get<Claim>(claims, { namespace, name });

  describe('a snapshot', () => {
    before(() => installCrds(rig.kube, snapshotCrds));

    it('is named in the request and has our finalizer until the PV is written', async () => {
      const snapshot = await snapshotOf();
      const claim = await claimOf(restoring(snapshot));
      const seen: unknown[] = [];
      rig.onCall = async ({ method, request }) => {
        if (method !== 'CreateVolume') return undefined;
        seen.push((await readSnapshot(snapshot))?.metadata.finalizers);
        const { volumeContentSource } = request as CreateVolumeRequest;
        return {
          volume: {
            volumeId: 'restored',
            capacityBytes: SIZE_BYTES,
            contentSource: volumeContentSource,
          },
        };
      };
      assert.equal((await rig.provision(claim, parts)).kind, 'done');
      const [sent] = requests();
      assert.deepEqual(sent?.volumeContentSource?.type.case, 'snapshot');
      assert.ok(sent.volumeContentSource.type.case === 'snapshot');
      assert.equal(
        sent.volumeContentSource.type.value.snapshotId,
        `handle-of-${snapshot.metadata.name}`,
      );
      assert.deepEqual(seen, [[SNAPSHOT_SOURCE_PROTECTION]]);
      assert.deepEqual((await readSnapshot(snapshot))?.metadata.finalizers ?? [], []);
      assert.equal((await rig.volumeOf(claim))?.spec.csi?.volumeHandle, 'restored');
    });

    it('that the driver’s answer does not name gets the volume deleted (C-07)', async () => {
      const claim = await claimOf(restoring(await snapshotOf()));
      rig.onCall = ({ method }) =>
        method === 'CreateVolume'
          ? { volume: { volumeId: 'empty', capacityBytes: SIZE_BYTES } }
          : undefined;
      const outcome = await rig.provision(claim, parts);
      assert.ok(
        outcome.kind === 'retry' && /^volume content source missing$/.test(outcome.reason),
        JSON.stringify(outcome),
      );
      assert.equal(creates().length, 1);
      assert.deepEqual(
        deletes().map(({ request }) => (request as DeleteVolumeRequest).volumeId),
        ['empty'],
      );
      assert.equal(await rig.volumeOf(claim), undefined);
      assert.equal(await rig.doubtMs(claim), undefined);
    });
  });

  describe('a claim', () => {
    it('is cloned for an hour without a warning, and other volumes are not', async () => {
      const source = await boundClaim();
      const claim = await claimOf(cloning(source.claim));
      rig.onCall = () => {
        throw new DriverStatus(Code.DeadlineExceeded, 'still copying');
      };
      for (let i = 0; i < 2; i += 1)
        assert.equal((await rig.provision(claim, parts)).kind, 'running');
      const [event, ...others] = rig.events;
      assert.deepEqual(others, []);
      assert.equal(`${event?.type} ${event?.reason}`, 'Normal Provisioning');
      const [, since = '', until = ''] =
        / since (\S+);.* from (\S+) on/.exec(event?.message ?? '') ?? [];
      assert.equal(new Date(until).getTime() - new Date(since).getTime(), 3_600_000);
      await rig.provision(await claimOf({}), parts);
      assert.equal(rig.events.at(-1)?.type, 'Warning');
    });

    it('is released by a later run of its own, too (K-05)', async () => {
      const { claim: source } = await boundClaim();
      const { name } = source.metadata;
      await rig.kube.patch(
        claims,
        { namespace: 'default', name },
        { type: 'merge', body: { metadata: { finalizers: [CLONE_PROTECTION] } } },
      );
      await rig.kube.delete(claims, { namespace: 'default', name });
      const open = new Set([`${claims.plural}/default/${name}`]);
      const whileOpen = { ...parts, openSources: () => Promise.resolve(open) };
      assert.equal((await rig.provision(source, whileOpen)).kind, 'running');
      const whenOver = { ...parts, openSources: () => Promise.resolve(new Set<string>()) };
      assert.deepEqual(await rig.provision(source, whenOver), {
        kind: 'done',
        note: 'all clones are created: our finalizer is removed',
      });
      assert.equal(await rig.kube.get(claims, { namespace: 'default', name }), undefined);
    });

    it('whose clone is too small stays; the clone is deleted (D-04)', async () => {
      const source = await boundClaim();
      const claim = await claimOf({
        ...cloning(source.claim),
        resources: { requests: { storage: '1048577' } },
      });
      answerWithSource();
      const outcome = await rig.provision(claim, parts);
      assert.ok(
        outcome.kind === 'retry' && /less than requested/.test(outcome.reason),
        JSON.stringify(outcome),
      );
      assert.equal(creates().length, 1);
      assert.equal(deletes().length, 1);
      assert.ok((await readClaim(source.claim))?.metadata.finalizers?.includes(CLONE_PROTECTION));
    });
  });

  describe('another namespace', () => {
    const crossed = { gates: { ...DEFAULT_GATES, CrossNamespaceVolumeDataSource: true } };
    const withGate = (): Partial<Dependencies> => ({
      ...parts,
      options: { ...rig.parts.options, ...crossed },
    });
    const grant = (
      namespace: string,
    ): Partial<ReferenceGrant> & { readonly apiVersion: string } => ({
      apiVersion: 'gateway.networking.k8s.io/v1beta1',
      kind: 'ReferenceGrant',
      metadata: { name: unique('grant'), namespace, uid: '', resourceVersion: '' },
      spec: {
        from: [{ group: '', kind: 'PersistentVolumeClaim', namespace: 'default' }],
        to: [{ group: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot' }],
      },
    });
    before(() => installCrds(rig.kube, snapshotCrds));

    for (const version of ['v1', 'v1beta1'] as const) {
      it(`may be restored from with a grant if the server has only ${version}`, async () => {
        await installCrds(rig.kube, [referenceGrantCrd([version])]);
        const snapshot = await snapshotOf({ namespace: 'kube-system' });
        const claim = await claimOf({
          dataSourceRef: { ...restoringRef(snapshot), namespace: 'kube-system' },
        });
        answerWithSource();
        const refused = await rig.provision(claim, withGate());
        assert.ok(
          refused.kind === 'retry' && refused.reason.endsWith("isn't allowed"),
          JSON.stringify(refused),
        );
        const object = {
          ...grant('kube-system'),
          apiVersion: `gateway.networking.k8s.io/${version}`,
        };
        await rig.kube.create({ ...referenceGrants, version }, 'kube-system', object);
        assert.equal((await rig.provision(claim, withGate())).kind, 'done');
        // Only a source in spec.dataSource loses our finalizer at once; others wait for the sweep.
        assert.deepEqual((await readSnapshot(snapshot))?.metadata.finalizers, [
          SNAPSHOT_SOURCE_PROTECTION,
        ]);
        await removeCrds(rig.kube, [referenceGrantCrd([version])]);
      });
    }

    const restoringRef = ({ metadata: { name } }: Snapshot) => ({
      apiGroup: 'snapshot.storage.k8s.io',
      kind: 'VolumeSnapshot',
      name,
    });
  });
});
