import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import { secrets } from '#src/kube/resources.ts';
import { forgetRecord } from '#src/records/forget.ts';
import { callsOf, loseAnswer, messagesOf, removeClaim } from '../claim-cases.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const PROVISIONER_SECRET = {
  'csi.storage.k8s.io/provisioner-secret-name': 'storage-login',
  'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
};

/* Whoever has the Redis password of jobs can change every record. Without seals
 * (sealed-records.test.ts) a record has to fit its claim at least. */
describe('a record that somebody has changed in Redis', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
    for (const name of ['storage-login', 'another'])
      await rig.kube.create(secrets, 'default', {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name, namespace: 'default' },
        data: { password: Buffer.from(`password of ${name}`).toString('base64') },
      });
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const change = ({ metadata: { uid } }: Claim, fields: Readonly<Record<string, string>>) =>
    rig.redis.hset(`{csi}:volume:${DRIVER}:${uid}`, fields);
  const sentPasswords = () =>
    callsOf(rig, 'CreateVolume').map(
      ({ request }) => (request as unknown as CreateVolumeRequest).secrets['password'],
    );

  /** A claim whose CreateVolume has been sent once and is to be repeated. */
  async function openClaim(parameters: Record<string, string> = {}): Promise<Claim> {
    const claim = await rig.claim({ parameters });
    await loseAnswer(rig, claim);
    return claim;
  }

  /** Asserts that the record is kept, that nothing is sent for it, and that an event says so. */
  async function assertUnused(claim: Claim, why: RegExp): Promise<void> {
    const calls = callsOf(rig, 'CreateVolume').length;
    rig.events.length = 0;
    const before = await rig.record(claim.metadata.uid);
    assert.equal((await rig.provision(claim)).kind, 'parked');
    assert.equal(callsOf(rig, 'CreateVolume').length, calls, 'CreateVolume was sent');
    assert.equal(await rig.volumeOf(claim), undefined);
    const [warning = '', ...more] = messagesOf(rig);
    assert.match(warning, why);
    assert.ok(warning.includes(`sutler forget ${claim.metadata.uid} --driver-name=${DRIVER}`));
    assert.deepEqual(more, []);
    const record = await rig.record(claim.metadata.uid);
    assert.equal(record['code'], 'UnusableRecord');
    for (const field of ['state', 'amb', 'n', 'req', 'skel', 'secret', 'ans'])
      assert.equal(record[field], before[field], field);
  }

  it('binds no claim to the volume of another one', async () => {
    const victim = await openClaim();
    const { req = '', skel = '' } = await rig.record(victim.metadata.uid);
    const claim = await openClaim();
    const { namespace, name, uid } = claim.metadata;
    const pvTemplate = JSON.parse(skel) as { volume: { spec: { claimRef: object } } };
    Object.assign(pvTemplate.volume.spec.claimRef, { namespace, name, uid });
    await change(claim, { req, skel: JSON.stringify(pvTemplate) });
    await assertUnused(
      claim,
      /its PersistentVolume is pvc-.*, which is not the name for this claim/,
    );
    await change(claim, { skel });
    await assertUnused(claim, /it is for claim default\/claim-.* with UID/);
  });

  it('asks the driver for no other volume than that of its PersistentVolume', async () => {
    const victim = await openClaim();
    const { req = '' } = await rig.record(victim.metadata.uid);
    const claim = await openClaim();
    await change(claim, { req });
    await assertUnused(claim, /its request names another volume/);
  });

  it('writes no PersistentVolume with the path of a node', async () => {
    const claim = await openClaim();
    const { skel = '' } = await rig.record(claim.metadata.uid);
    const pvTemplate = JSON.parse(skel) as { volume: { spec: object } };
    Object.assign(pvTemplate.volume.spec, { hostPath: { path: '/' } });
    await change(claim, { skel: JSON.stringify(pvTemplate) });
    await assertUnused(claim, /its PersistentVolume has spec\.hostPath/);
  });

  it('sends no secret that the class does not give', async () => {
    const claim = await openClaim(PROVISIONER_SECRET);
    await change(claim, { secret: JSON.stringify({ name: 'another', namespace: 'default' }) });
    await assertUnused(
      claim,
      /it names secret default\/another \(Provisioner\), which StorageClass/,
    );
    assert.deepEqual(sentPasswords(), ['password of storage-login']);
  });

  it('sends no secret of a class of another driver, if the claim is gone', async () => {
    const claim = await openClaim(PROVISIONER_SECRET);
    await removeClaim(rig, claim);
    const outcome = await rig.provision(claim, {
      classOf: (name) => {
        const cls = rig.parts.classOf(name);
        return cls && ({ ...cls, provisioner: 'other.example' } satisfies Class);
      },
    });
    assert.ok(outcome.kind === 'parked' && outcome.reason.includes('this driver has no Storage'));
    assert.equal((await rig.provision(claim)).kind, 'done');
    assert.equal(sentPasswords().length, 2);
  });

  it('ends no run with an exception, whatever it contains', async () => {
    for (const fields of [{ skel: 'x' }, { skel: '{}' }, { req: '////' }, { secret: '[]' }]) {
      const claim = await openClaim();
      await change(claim, fields);
      await assertUnused(claim, /is not used: its/);
    }
  });

  it('deletes nothing, and warns on the PersistentVolume', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    const volume = await rig.setPhase((await rig.volumeOf(claim)) as Volume, 'Released');
    const other = await openClaim();
    const { req = '', skel = '' } = await rig.record(other.metadata.uid);
    await change(claim, { state: 'creating', amb: '1', req, skel });
    rig.events.length = 0;
    assert.equal((await rig.remove(volume)).kind, 'retry');
    assert.match(messagesOf(rig)[0] ?? '', /VolumeFailedDelete the volume record .* is not used/);
    assert.equal(callsOf(rig, 'DeleteVolume').length, 0);
  });

  it('is provisioned anew once an operator has forgotten the record', async () => {
    const claim = await openClaim();
    await change(claim, { skel: 'x' });
    assert.equal((await rig.provision(claim)).kind, 'parked');
    const place = { prefix: 'csi', driver: DRIVER, id: claim.metadata.uid };
    await forgetRecord(rig.redis, place, { by: 'test', why: 'forged', atMs: Date.now() });
    assert.equal((await rig.provision(claim)).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
  });

  it('that nobody has changed is finished though its class is gone, which gave no secret', async () => {
    const claim = await openClaim();
    assert.equal((await rig.provision(claim, { classOf: () => undefined })).kind, 'done');
  });
});
