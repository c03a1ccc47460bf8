import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CLAIM_FINALIZER } from '#src/kube/keys.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { failWith } from '../claim-cases.ts';
import { openRig, type Rig } from '../rig.ts';

describe('--claim-finalizer', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const on = { claimFinalizer: true };
  const read = (claim: Claim) =>
    rig.kube.get<Claim>(claims, { namespace: 'default', name: claim.metadata.name });
  const isHeld = async (claim: Claim): Promise<boolean> =>
    (await read(claim))?.metadata.finalizers?.includes(CLAIM_FINALIZER) === true;
  const loseAnswers = (): void => {
    rig.onCall = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      return new Promise(() => undefined);
    };
  };

  it('is off by default: no claim is written to', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { timeoutMs: 100 });
    assert.equal(await isHeld(claim), false);
  });

  it('holds the claim while the record is open', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...on, timeoutMs: 100 });
    assert.equal(await isHeld(claim), true);
  });

  it('is on the claim before the driver is called', async () => {
    const claim = await rig.claim();
    let heldAtCall: boolean | undefined;
    rig.onCall = async ({ method }) => {
      if (method === 'CreateVolume') heldAtCall = await isHeld(claim);
      return undefined;
    };
    await rig.provision(claim, on);
    assert.equal(heldAtCall, true);
  });

  it('lets go once the volume is written', async () => {
    const claim = await rig.claim();
    await rig.provision(claim, on);
    assert.equal(await isHeld(claim), false);
  });

  it('lets a deleted claim go when the driver refused and nothing is open', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...on, timeoutMs: 100 });
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    assert.equal(await isHeld(claim), true);
    await rig.redis.hset(`{csi}:volume:sample.csi.sutler.dev:${claim.metadata.uid}`, { amb: '0' });
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(Code.Internal, 'no');
    };
    await rig.provision(claim, on);
    assert.equal(await isHeld(claim), false);
  });

  it('brings the volume of a deleted claim home although Redis lost everything', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...on, timeoutMs: 100 });
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await rig.reset();
    assert.equal((await rig.provision(claim, on)).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
    assert.equal(await isHeld(claim), false);
  });

  it('is swept from a claim that has it without need, whatever the flag', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    const held = await rig.kube.patch<Claim>(
      claims,
      { namespace: 'default', name: claim.metadata.name },
      { type: 'strategic', body: { metadata: { finalizers: [CLAIM_FINALIZER] } } },
    );
    await rig.provision(held);
    assert.equal(await isHeld(claim), false);
  });

  it('lets a claim go that is being deleted while its secret is missing: nothing is open', async () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const claim = await rig.claim({ parameters });
    await rig.provision(claim, on);
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await rig.provision(claim, on);
    assert.equal(await isHeld(claim), false);
  });

  it('lets a claim go that is being deleted while its class is missing: nothing is open', async () => {
    const claim = await rig.claim();
    failWith(rig, new DriverStatus(Code.Internal, 'no'));
    await rig.provision(claim, on);
    assert.equal(await isHeld(claim), true);
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await rig.provision(claim, { ...on, classOf: () => undefined });
    assert.equal(await isHeld(claim), false);
  });
});
