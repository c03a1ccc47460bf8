import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { ProcessorPorts } from '#src/jobs/ports.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { callsOf, failWith, heal, loseAnswer, messagesOf, removeClaim } from '../claim-cases.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

describe('two claims whose UIDs begin alike', () => {
  let rig: Rig;
  let short: Partial<ProcessorPorts>;
  let first: Claim;
  let second: Claim;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(async () => {
    await rig.reset();
    short = { options: { ...rig.ports.options, volumeNameUuidLength: 1 } };
    for (const { metadata } of (await rig.kube.list<Volume>(volumes)).items) {
      await rig.kube.patch(
        volumes,
        { name: metadata.name },
        { type: 'merge', body: { metadata: { finalizers: null } } },
      );
      await rig.kube.delete(volumes, { name: metadata.name });
    }
    [first, second] = await twins();
  });

  /** Of 17 claims two have UIDs that begin with the same digit. */
  async function twins(): Promise<[Claim, Claim]> {
    const byDigit = new Map<string, Claim>();
    for (;;) {
      const claim = await rig.claim({ className: 'of-twins' });
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
    assert.equal((await rig.provision(second, short)).kind, 'retry');
    assert.equal(callsOf(rig, 'CreateVolume').length, calls, 'nothing is sent');
    const words = `volume name ${nameOf(first)} belongs to the claim with UID ${first.metadata.uid}, whose UID begins alike; raise --volume-name-uuid-length, or make this claim anew`;
    assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${words}`]);
  }

  it('do not get one volume: the second is refused while the first one’s call is open', async () => {
    await loseAnswer(rig, first, short);
    await assertRefused();
  });

  it('do not get one volume: the second is refused while the first one’s PV is there', async () => {
    assert.equal((await rig.provision(first, short)).kind, 'done');
    await assertRefused();
  });

  it('are told apart where the first one’s PV was removed and the second has the name now', async () => {
    assert.equal((await rig.provision(first, short)).kind, 'done');
    await rig.kube.patch(
      volumes,
      { name: nameOf(first) },
      { type: 'merge', body: { metadata: { finalizers: null } } },
    );
    await rig.kube.delete(volumes, { name: nameOf(first) });
    const keys = await rig.redis.keys('{csi}:name:*');
    if (keys.length > 0) await rig.redis.del(keys);
    assert.equal((await rig.provision(second, short)).kind, 'done');
    rig.events.length = 0;
    assert.equal((await rig.provision(first, short)).kind, 'retry');
    assert.match(
      messagesOf(rig)[0] ?? '',
      /^Warning ProvisioningFailed volume name \S+ belongs to the claim with UID /,
    );
  });

  it('do not get one volume, even where Redis forgot the first', async () => {
    await rig.provision(first, short);
    const keys = await rig.redis.keys('{csi}:name:*');
    if (keys.length > 0) await rig.redis.del(keys);
    await assertRefused();
    assert.deepEqual(
      await rig.redis.keys('{csi}:name:*'),
      [],
      'the second does not keep the name from the first',
    );
  });

  it('do not get one volume where both ask at once', async () => {
    const outcomes = await Promise.all([rig.provision(first, short), rig.provision(second, short)]);
    assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ['done', 'retry']);
    assert.equal(callsOf(rig, 'CreateVolume').length, 1);
  });

  it('the second gets one once it is proven that the first has none', async () => {
    failWith(rig, new DriverStatus(Code.Internal, 'no'));
    assert.equal((await rig.provision(first, short)).kind, 'retry');
    heal(rig);
    assert.equal((await rig.provision(second, short)).kind, 'done');
    assert.equal(
      (await rig.kube.get<Volume>(volumes, { name: nameOf(second) }))?.spec.claimRef?.uid,
      second.metadata.uid,
    );
  });

  it('the first goes on with its own name', async () => {
    await loseAnswer(rig, first, short);
    await assertRefused();
    assert.equal((await rig.provision(first, short)).kind, 'done');
  });

  it('and a PV of that name that belongs to no claim, do not get one volume either', async () => {
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
    assert.equal((await rig.provision(first, short)).kind, 'retry');
    assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
    assert.match(
      messagesOf(rig)[0] ?? '',
      /PersistentVolume pvc-. belongs to no claim and has the name that this claim’s volume would get; delete it/,
    );
  });

  it('both get one with whole UIDs, for which nothing is asked of Redis', async () => {
    await loseAnswer(rig, first);
    assert.equal((await rig.provision(second)).kind, 'done');
    assert.deepEqual(await rig.redis.keys('{csi}:name:*'), []);
  });

  it('keep the name while the claim is gone and its record open, and free it once the volume is written', async () => {
    await loseAnswer(rig, first, short);
    await removeClaim(rig, first);
    const key = `{csi}:name:${DRIVER}:pvc-${first.metadata.uid.charAt(0)}`;
    await rig.redis.pexpire(key, 60_000);
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(Code.Unavailable, 'soon');
    };
    await rig.provision(first, short);
    assert.ok((await rig.redis.pttl(key)) > 60_000, 'its hold is as long as ever');
    heal(rig);
    assert.equal((await rig.provision(first, short)).kind, 'done');
    assert.equal(await rig.redis.exists(key), 0);
  });
});
