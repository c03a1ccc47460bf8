import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { callsOf, failWith, endFaults, loseAnswer, messagesOf } from '../claim-cases.ts';
import { openRig, type Rig } from '../rig.ts';

describe('two claims whose UIDs begin alike', () => {
  let rig: Rig;
  let shortened: Partial<Dependencies>;
  let first: Claim;
  let second: Claim;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(async () => {
    await rig.reset();
    shortened = { options: { ...rig.parts.options, volumeNameUuidLength: 1 } };
    for (const { metadata } of (await rig.kube.list<Volume>(volumes)).items) {
      await rig.kube.patch(
        volumes,
        { name: metadata.name },
        { type: 'merge', body: { metadata: { finalizers: null } } },
      );
      await rig.kube.delete(volumes, { name: metadata.name });
    }
    [first, second] = await createTwins();
  });

  /** Creates claims until two UIDs begin with the same digit: 17 at most. */
  async function createTwins(): Promise<[Claim, Claim]> {
    const byDigit = new Map<string, Claim>();
    for (;;) {
      const claim = await rig.claim({ className: 'shared' });
      const digit = claim.metadata.uid.charAt(0);
      const other = byDigit.get(digit);
      if (other !== undefined) return [other, claim];
      byDigit.set(digit, claim);
    }
  }
  const nameOf = ({ metadata }: Claim): string => `pvc-${metadata.uid.charAt(0)}`;
  async function assertRefused(): Promise<void> {
    rig.events.length = 0;
    const calls = callsOf(rig, 'CreateVolume').length;
    assert.equal((await rig.provision(second, shortened)).kind, 'retry');
    assert.equal(callsOf(rig, 'CreateVolume').length, calls, 'nothing is sent');
    const message =
      `volume name ${nameOf(first)} belongs to the claim with UID ${first.metadata.uid}, ` +
      'whose UID begins alike; raise --volume-name-uuid-length, or create this claim again';
    assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${message}`]);
  }

  it('the second is refused while the PV of the first exists', async () => {
    assert.equal((await rig.provision(first, shortened)).kind, 'done');
    await assertRefused();
  });

  it('the first is refused if its PV was removed and the second has the name now', async () => {
    assert.equal((await rig.provision(first, shortened)).kind, 'done');
    await rig.kube.patch(
      volumes,
      { name: nameOf(first) },
      { type: 'merge', body: { metadata: { finalizers: null } } },
    );
    await rig.kube.delete(volumes, { name: nameOf(first) });
    assert.equal((await rig.provision(second, shortened)).kind, 'done');
    rig.events.length = 0;
    assert.equal((await rig.provision(first, shortened)).kind, 'retry');
    assert.match(
      messagesOf(rig)[0] ?? '',
      /^Warning ProvisioningFailed volume name \S+ belongs to the claim with UID /,
    );
  });

  it('the second gets a volume if the driver refuses that of the first', async () => {
    failWith(rig, new DriverStatus(Code.Internal, 'no'));
    assert.equal((await rig.provision(first, shortened)).kind, 'retry');
    endFaults(rig);
    assert.equal((await rig.provision(second, shortened)).kind, 'done');
    assert.equal(
      (await rig.kube.get<Volume>(volumes, { name: nameOf(second) }))?.spec.claimRef?.uid,
      second.metadata.uid,
    );
  });

  it('are refused if a PV of that name belongs to no claim', async () => {
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      csi: { driver: 'x', volumeHandle: 'y' },
    };
    await rig.kube.create(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: nameOf(first) },
      spec,
    });
    assert.equal((await rig.provision(first, shortened)).kind, 'retry');
    assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
    const message =
      `PersistentVolume ${nameOf(first)} belongs to no claim and has the name that ` +
      'this claim’s volume would get; delete it';
    assert.ok(messagesOf(rig)[0]?.includes(message), messagesOf(rig)[0]);
  });

  it('both get a volume with whole UIDs', async () => {
    await loseAnswer(rig, first);
    assert.equal((await rig.provision(second)).kind, 'done');
  });
});
