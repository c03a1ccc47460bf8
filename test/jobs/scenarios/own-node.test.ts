import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CLAIM_FINALIZER, SELECTED_NODE } from '#src/kube/keys.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { annotatedClaim, claimNow, failWith, withTopology } from '../claim-cases.ts';
import { kubeWith, type Parts } from '../parts.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const OWN = 'node';

describe('a process that serves one node', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(async () => {
    await rig.reset();
    await rig.redis.flushall();
    const epochs = redisDataEpochStore(rig.redis, 'csi', DRIVER);
    await epochs.begin({ id: `e-${Date.now()}`, quarantineMs: 0, sequence: 0 });
  });

  const parts = (): Partial<Parts> => {
    const ofDriver = withTopology(rig);
    const facts = ofDriver.facts ?? rig.parts.facts;
    return {
      ...ofDriver,
      facts: () => ({ ...facts(), ownNode: OWN }),
      records: rig.newRecords({ isSoftState: true, settleMs: 0 }),
      isSoftState: true,
      usesClaimFinalizer: true,
    };
  };
  const finalized = async (annotations: Readonly<Record<string, string>>): Promise<Claim> => {
    const { metadata } = await annotatedClaim(rig, annotations);
    const ref = { namespace: 'default', name: metadata.name };
    const body = { metadata: { finalizers: [CLAIM_FINALIZER] } };
    return rig.kube.patch<Claim>(claims, ref, { type: 'merge', body });
  };
  const hasFinalizer = async (claim: Claim): Promise<boolean> =>
    (await claimNow(rig, claim))?.metadata.finalizers?.includes(CLAIM_FINALIZER) === true;
  const full = () => failWith(rig, new DriverStatus(Code.ResourceExhausted, 'full'));

  it('makes the volume of a claim of its node, and removes its finalizer', async () => {
    const claim = await annotatedClaim(rig, { [SELECTED_NODE]: OWN });
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
    assert.equal(await hasFinalizer(claim), false);
  });

  it('does not touch a claim of another node', async () => {
    const claim = await finalized({ [SELECTED_NODE]: 'other' });
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    assert.deepEqual(await claimNow(rig, claim), claim);
    assert.equal(rig.driver.calls.length, 0);
  });

  it('does not touch the finalizer of a claim without a node', async () => {
    const claim = await finalized({});
    const { name } = claim.metadata;
    const body = { spec: { volumeName: 'bound' } };
    await rig.kube.patch(claims, { namespace: 'default', name }, { type: 'merge', body });
    await rig.provision(claim, parts());
    assert.ok(await hasFinalizer(claim));
  });

  it('gives a claim back without its finalizer, in one write', async () => {
    const claim = await annotatedClaim(rig, { [SELECTED_NODE]: OWN });
    full();
    const written: Claim[] = [];
    const { kube } = kubeWith(rig, {
      async update(resource, ref, object) {
        written.push(object as Claim);
        return rig.kube.update(resource, ref, object);
      },
    });
    const outcome = await rig.provision(claim, { ...parts(), kube });
    assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
    const [, { metadata } = claim] = written;
    assert.equal(metadata.annotations?.[SELECTED_NODE], undefined);
    assert.deepEqual(metadata.finalizers?.includes(CLAIM_FINALIZER), false);
  });

  it('leaves the finalizer of the node that takes the claim next', async () => {
    const claim = await annotatedClaim(rig, { [SELECTED_NODE]: OWN });
    full();
    const { kube } = kubeWith(rig, {
      async update<T>(...[resource, ref, object]: Parameters<Parts['kube']['update']>) {
        const updated = await rig.kube.update<T>(resource, ref, object);
        if ((object as Claim).metadata.annotations?.[SELECTED_NODE] === undefined) {
          const metadata = {
            annotations: { [SELECTED_NODE]: 'other' },
            finalizers: [CLAIM_FINALIZER],
          };
          await rig.kube.patch(claims, ref, { type: 'merge', body: { metadata } });
        }
        return updated;
      },
    });
    await rig.provision(claim, { ...parts(), kube });
    assert.ok(await hasFinalizer(claim));
  });
});
