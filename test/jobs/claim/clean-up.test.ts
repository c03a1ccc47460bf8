import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, secrets, volumes } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { AZURE_DISK } from '#src/migration/azure-disk.ts';
import {
  answerWith,
  callsOf,
  frozenClock,
  loseAnswer,
  messagesOf,
  stateOf,
} from '../claim-cases.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const REQUESTED_BYTES = 2n ** 20n;
const TOO_SMALL = { volume: { volumeId: 'too-small', capacityBytes: REQUESTED_BYTES - 1n } };
const TOO_SMALL_MESSAGE =
  `created volume capacity ${REQUESTED_BYTES - 1n} ` +
  `less than requested capacity ${REQUESTED_BYTES}`;

describe('a volume that no PV can be made of', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const provision = (claim: Claim, change: Partial<Dependencies> = {}) =>
    rig.provision(claim, { clock: frozenClock(), ...change });
  const deletions = () =>
    callsOf(rig, 'DeleteVolume').map(({ request }) => request as DeleteVolumeRequest);

  it('is deleted once, nothing stays begun, and the claim is planned anew (B-22)', async () => {
    const claim = await rig.claim();
    answerWith(rig, {
      volume: { volumeId: 'too-small', capacityBytes: (REQUESTED_BYTES * 8n) / 10n },
    });
    const outcome = await provision(claim);
    assert.equal(outcome.kind, 'retry');
    assert.equal(await rig.doubtMs(claim), undefined);
    assert.deepEqual(
      deletions().map(({ volumeId }) => volumeId),
      ['too-small'],
    );
    assert.equal(await stateOf(rig, claim), 'none');
    assert.equal(await rig.volumeOf(claim), undefined);
    await provision(claim);
    assert.equal(callsOf(rig, 'CreateVolume').length, 2);
  });

  it('is deleted without secrets if the class has none, and reported (B-46)', async () => {
    const claim = await rig.claim();
    answerWith(rig, TOO_SMALL);
    await provision(claim);
    assert.deepEqual(
      deletions().map(({ volumeId, secrets: given }) => [volumeId, given]),
      [['too-small', {}]],
    );
    assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${TOO_SMALL_MESSAGE}`]);
  });

  it('is deleted with the secret that it was created with', async () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const claim = await rig.claim({ parameters });
    const metadata = { name: claim.metadata.name, namespace: 'default' };
    const data = { key: Buffer.from('value').toString('base64') };
    await rig.kube.create(secrets, 'default', { apiVersion: 'v1', kind: 'Secret', metadata, data });
    answerWith(rig, TOO_SMALL);
    await provision(claim);
    assert.deepEqual(
      deletions().map(({ secrets: given }) => given),
      [{ key: 'value' }],
    );
  });

  it('may still exist after five failed deletions (R-11)', async () => {
    const claim = await rig.claim();
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume') return TOO_SMALL;
      throw new DriverStatus(Code.Internal, 'stuck');
    };
    const outcome = await provision(claim);
    assert.equal(outcome.kind, 'retry');
    assert.notEqual(await rig.doubtMs(claim), undefined);
    assert.equal(deletions().length, 5);
    const name = `pvc-${claim.metadata.uid}`;
    const why = 'volume is orphaned: rpc error: code = Internal desc = stuck';
    assert.deepEqual(messagesOf(rig), [
      `Warning ProvisioningFailed ${TOO_SMALL_MESSAGE}. Cleanup of volume ${name} failed, ${why}`,
    ]);
    assert.equal(await stateOf(rig, claim), 'open');
    await provision(claim);
    assert.equal(messagesOf(rig).length, 1, 'the same answer renews the event');
  });

  it('is not deleted after a repeated call: it may be an earlier call’s volume', async () => {
    const claim = await rig.claim();
    await loseAnswer(rig, claim);
    answerWith(rig, TOO_SMALL);
    assert.equal((await provision(claim)).kind, 'retry');
    assert.deepEqual(deletions(), []);
    assert.equal(await stateOf(rig, claim), 'open');
  });

  it('is not deleted if a PV has its name', async () => {
    const claim = await rig.claim();
    const name = `pvc-${claim.metadata.uid}`;
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      csi: { driver: DRIVER, volumeHandle: 'too-small' },
    };
    await rig.kube.create(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name },
      spec,
    });
    answerWith(rig, TOO_SMALL);
    await provision(claim);
    assert.deepEqual(deletions(), []);
    assert.match(
      messagesOf(rig)[0] ?? '',
      new RegExp(`volume is orphaned: PersistentVolume ${name} exists$`),
    );
    assert.equal(await stateOf(rig, claim), 'open');
  });

  it('is not deleted if its PV can’t be read', async () => {
    const claim = await rig.claim();
    answerWith(rig, TOO_SMALL);
    const down = new KubeError({ code: 0, reason: 'Network', serverMessage: 'connection refused' });
    const outage = kubeWith(rig, {
      get: async (...args) =>
        args[0].plural === 'persistentvolumes' ? Promise.reject(down) : rig.kube.get(...args),
    });
    assert.equal((await provision(claim, outage)).kind, 'retry');
    assert.deepEqual(deletions(), []);
    assert.match(messagesOf(rig)[0] ?? '', /volume is orphaned: .*connection refused$/);
    assert.equal(await stateOf(rig, claim), 'open');
  });

  it('is not deleted if reading its PV took too long', async () => {
    const claim = await rig.claim();
    answerWith(rig, TOO_SMALL);
    let nowMs = Date.now() + 3_600_000;
    await provision(claim, { clock: { ...systemClock, nowMs: () => (nowMs += 3_000) } });
    assert.deepEqual(deletions(), []);
    assert.match(
      messagesOf(rig)[0] ?? '',
      /volume is orphaned: reading its PersistentVolume took too long$/,
    );
    assert.equal(await stateOf(rig, claim), 'open');
  });

  it('without an in-tree form is deleted, reported once, and parks on the class', async () => {
    const migrated: Partial<Dependencies> = {
      facts: () => ({
        ...rig.parts.facts(),
        name: AZURE_DISK.csiDriver,
        inTreeName: AZURE_DISK.inTreeName,
      }),
      classOf: (name) => {
        const cls = rig.parts.classOf(name);
        return cls === undefined ? undefined : { ...cls, provisioner: AZURE_DISK.inTreeName };
      },
    };
    const claim = await rig.claim();
    const { namespace = '', name } = claim.metadata;
    const annotations = { 'volume.kubernetes.io/storage-provisioner': AZURE_DISK.csiDriver };
    await rig.kube.patch(
      claims,
      { namespace, name },
      { type: 'merge', body: { metadata: { annotations } } },
    );
    answerWith(rig, { volume: { volumeId: 'no-disk-uri', capacityBytes: REQUESTED_BYTES } });
    const outcome = await provision(claim, migrated);
    assert.ok(outcome.kind === 'parked');
    const className = claim.spec.storageClassName ?? '';
    const seen = rig.parts.classOf(className)?.metadata.resourceVersion;
    assert.deepEqual(outcome.until, [{ resource: 'storageclasses', name: className, seen }]);
    assert.equal(deletions().length, 1);
    assert.equal(await stateOf(rig, claim), 'none');
    assert.match(messagesOf(rig)[0] ?? '', /could not get disk name from no-disk-uri/);
    await provision(claim, migrated);
    assert.equal(messagesOf(rig).length, 1);
  });
});
