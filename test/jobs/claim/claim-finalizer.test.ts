import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CLAIM_FINALIZER } from '#src/kube/keys.ts';
import { statusError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { failWith } from '../claim-cases.ts';
import { kubeWith } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

describe('--claim-finalizer', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const withFlag = { usesClaimFinalizer: true };
  const read = (claim: Claim) =>
    rig.kube.get<Claim>(claims, { namespace: 'default', name: claim.metadata.name });
  const hasOurFinalizer = async (claim: Claim): Promise<boolean> =>
    (await read(claim))?.metadata.finalizers?.includes(CLAIM_FINALIZER) === true;
  const loseAnswers = (): void => {
    rig.onCall = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      return new Promise(() => undefined);
    };
  };

  it('is off by default', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { timeoutMs: 100 });
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('stays on the claim while the record is open', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...withFlag, timeoutMs: 100 });
    assert.equal(await hasOurFinalizer(claim), true);
  });

  it('is on the claim before the driver is called', async () => {
    const claim = await rig.claim();
    let hadFinalizer: boolean | undefined;
    rig.onCall = async ({ method }) => {
      if (method === 'CreateVolume') hadFinalizer = await hasOurFinalizer(claim);
      return undefined;
    };
    await rig.provision(claim, withFlag);
    assert.equal(hadFinalizer, true);
  });

  it('needs no right to patch claims, and is removed also when others write them too', async () => {
    const claim = await rig.claim();
    const denied = statusError('PATCH', { code: 403, message: 'denied' });
    let updates = 0;
    const { kube } = kubeWith(rig, {
      patch: (resource, ...rest) =>
        resource === claims ? Promise.reject(denied) : rig.kube.patch(resource, ...rest),
      update: async (resource, ref, ...rest) => {
        updates += 1;
        if (updates === 2) {
          const body = { metadata: { annotations: { other: 'writer' } } };
          await rig.kube.patch(claims, ref, { type: 'merge', body });
        }
        return rig.kube.update(resource, ref, ...rest);
      },
    });
    assert.equal((await rig.provision(claim, { ...withFlag, kube })).kind, 'done');
    assert.equal(updates, 3);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('is not needed for the volume of a claim that was being deleted before', async () => {
    const claim = await rig.claim();
    const ref = { namespace: 'default', name: claim.metadata.name };
    const body = { metadata: { finalizers: ['example.com/keeps'] } };
    await rig.kube.patch(claims, ref, { type: 'strategic', body });
    await rig.kube.delete(claims, ref);
    assert.equal((await rig.provision(claim, withFlag)).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
  });

  it('is removed after a refusal that leaves no record open', async () => {
    const claim = await rig.claim();
    failWith(rig, new DriverStatus(Code.Internal, 'no'));
    await rig.provision(claim, withFlag);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('is removed once the PV is written', async () => {
    const claim = await rig.claim();
    await rig.provision(claim, withFlag);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('is removed from a deleted claim after a refusal that leaves no record open', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...withFlag, timeoutMs: 100 });
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    assert.equal(await hasOurFinalizer(claim), true);
    await rig.redis.hset(`{csi}:volume:sample.csi.sutler.dev:${claim.metadata.uid}`, { amb: '0' });
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(Code.Internal, 'no');
    };
    await rig.provision(claim, withFlag);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('lets a run finish the volume of a deleted claim after Redis lost all data', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...withFlag, timeoutMs: 100 });
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await rig.reset();
    assert.equal((await rig.provision(claim, withFlag)).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('is removed from a claim that does not need it, even without the flag', async () => {
    const claim = await rig.claim();
    await rig.provision(claim);
    const patched = await rig.kube.patch<Claim>(
      claims,
      { namespace: 'default', name: claim.metadata.name },
      { type: 'strategic', body: { metadata: { finalizers: [CLAIM_FINALIZER] } } },
    );
    await rig.provision(patched);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('is removed from a deleted claim whose secret is missing', async () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const claim = await rig.claim({ parameters });
    await rig.provision(claim, withFlag);
    await rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await rig.provision(claim, withFlag);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('is removed from a deleted claim whose class is missing', async () => {
    const claim = await rig.claim();
    const ref = { namespace: 'default', name: claim.metadata.name };
    const body = { metadata: { finalizers: [CLAIM_FINALIZER] } };
    await rig.kube.patch(claims, ref, { type: 'strategic', body });
    await rig.kube.delete(claims, ref);
    await rig.provision(claim, { ...withFlag, classOf: () => undefined });
    assert.equal(await hasOurFinalizer(claim), false);
  });
});
