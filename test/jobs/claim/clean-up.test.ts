import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Claim } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { AZURE_DISK } from '#src/migration/azure-disk.ts';
import { DRIVER, WITH_SECRET, useRig, type Rig } from '../rig.ts';

const BYTES = 2n ** 20n;
const TOO_SMALL = { volume: { volumeId: 'too-small', capacityBytes: BYTES - 1n } };
const TOO_SMALL_MESSAGE = `created volume capacity ${BYTES - 1n} less than requested capacity ${BYTES}`;

describe('a volume that no PV can be made of', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const provision = (claim: Claim, change: Partial<Dependencies> = {}) => {
    // A clock that does not advance, so that only the number of calls ends a clean-up. It is an
    // hour ahead, so that the gateway does not refuse calls as too late.
    const nowMs = Date.now() + 3_600_000;
    return rig.provision(claim, { clock: { ...systemClock, nowMs: () => nowMs }, ...change });
  };
  const deletions = () =>
    rig.callsOf('DeleteVolume').map(({ request }) => request as DeleteVolumeRequest);
  const begin = ({ metadata }: Claim) =>
    `Warning ProvisioningFailed ${TOO_SMALL_MESSAGE}. ` +
    `Cleanup of volume pvc-${metadata.uid} failed, volume is orphaned: `;

  it('is deleted once, reported, and the claim is planned anew (B-22, B-46, C-07, D-04)', async () => {
    const claim = await rig.claim();
    rig.answerWith(TOO_SMALL);
    assert.equal((await provision(claim)).kind, 'retry');
    assert.deepEqual(
      deletions().map(({ volumeId, secrets }) => [volumeId, secrets]),
      [['too-small', {}]],
    );
    assert.equal(await rig.stateOf(claim), 'none');
    assert.equal(await rig.volumeOf(claim), undefined);
    assert.deepEqual(rig.messages(), [`Warning ProvisioningFailed ${TOO_SMALL_MESSAGE}`]);
    await provision(claim);
    assert.equal(rig.callsOf('CreateVolume').length, 2);
  });

  it('is deleted with the secret that it was created with', async () => {
    const claim = await rig.claim({ parameters: WITH_SECRET });
    await rig.secret(claim.metadata.name, { key: 'value' });
    rig.answerWith(TOO_SMALL);
    await provision(claim);
    assert.deepEqual(
      deletions().map(({ secrets }) => secrets),
      [{ key: 'value' }],
    );
  });

  it('may still exist after five failed deletions (R-11)', async () => {
    const claim = await rig.claim();
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume') return TOO_SMALL;
      throw new DriverStatus(Code.Internal, 'stuck');
    };
    assert.equal((await provision(claim)).kind, 'retry');
    assert.equal(deletions().length, 5);
    const expected = `${begin(claim)}rpc error: code = Internal desc = stuck`;
    assert.deepEqual(rig.messages(), [expected]);
    assert.equal(await rig.stateOf(claim), 'open');
    await provision(claim);
    assert.equal(rig.messages().length, 1, 'the same answer renews the event');
  });

  it('is not deleted after a repeated call: it may be an earlier call’s volume', async () => {
    const claim = await rig.claim();
    await rig.loseAnswer(claim);
    rig.answerWith(TOO_SMALL);
    assert.equal((await provision(claim)).kind, 'retry');
    assert.deepEqual(deletions(), []);
    assert.equal(await rig.stateOf(claim), 'open');
  });

  /** Nothing is deleted, and the event says why. */
  const assertKept = async (claim: Claim, why: string, change?: Partial<Dependencies>) => {
    rig.answerWith(TOO_SMALL);
    await provision(claim, change);
    assert.deepEqual(deletions(), []);
    assert.deepEqual(rig.messages(), [`${begin(claim)}${why}`]);
    assert.equal(await rig.stateOf(claim), 'open');
  };

  it('is not deleted if a PV has its name', async () => {
    const claim = await rig.claim();
    const name = `pvc-${claim.metadata.uid}`;
    await rig.kube.create(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        csi: { driver: DRIVER, volumeHandle: 'too-small' },
      },
    });
    await assertKept(claim, `PersistentVolume ${name} exists`);
  });

  it('is not deleted if its PV can’t be read', async () => {
    const claim = await rig.claim();
    const outage = rig.refusing('get', 503, (plural) => plural === 'persistentvolumes');
    await assertKept(claim, 'KubeError: not for you', outage);
  });

  it('is not deleted if reading its PV took too long', async () => {
    let nowMs = Date.now() + 3_600_000;
    const clock = { ...systemClock, nowMs: () => (nowMs += 3_000) };
    await assertKept(await rig.claim(), 'reading its PersistentVolume took too long', { clock });
  });

  it('without an in-tree form is deleted, reported once, and parks on the class', async () => {
    const { csiDriver: name, inTreeName } = AZURE_DISK;
    const migrated: Partial<Dependencies> = {
      facts: () => ({ ...rig.parts.facts(), name, inTreeName }),
      classOf: (of) => {
        const cls = rig.parts.classOf(of);
        return cls && { ...cls, provisioner: inTreeName };
      },
    };
    const annotations = { 'volume.kubernetes.io/storage-provisioner': name };
    const claim = await rig.claim({ annotations });
    rig.answerWith({ volume: { volumeId: 'no-disk-uri', capacityBytes: BYTES } });
    const outcome = await provision(claim, migrated);
    assert.ok(outcome.kind === 'parked');
    const className = claim.spec.storageClassName ?? '';
    const seen = rig.parts.classOf(className)?.metadata.resourceVersion;
    assert.deepEqual(outcome.until, [{ resource: 'storageclasses', name: className, seen }]);
    assert.equal(deletions().length, 1);
    assert.equal(await rig.stateOf(claim), 'none');
    await provision(claim, migrated);
    assert.equal(rig.messages().length, 1);
    assert.match(rig.messages()[0] ?? '', /could not get disk name from no-disk-uri/);
  });
});
