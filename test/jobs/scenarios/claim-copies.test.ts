import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { Parts } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

describe('a run with a copy of the claim', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(async () => {
    await rig.reset();
    rig.cluster.api.requests.reset();
  });

  /** What the job carries: the claim as it was. */
  const copyOf = (claim: Claim): Partial<Parts> => ({
    copies: { claimOf: () => Promise.resolve(claim) },
  });
  const asked = (): Readonly<Record<string, number>> => rig.cluster.api.requests.snapshot();
  const refOf = ({ metadata: { name } }: Claim) => ({ namespace: 'default', name });
  const madeFor = ({ metadata: { uid } }: Claim) =>
    rig.driver.volumes().filter(({ name }) => name === `pvc-${uid}`);
  const failCreation = (): void => {
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(Code.Aborted, 'at work');
    };
  };

  it('sends the API server one request, which writes the volume', async () => {
    const claim = await rig.claim();
    rig.cluster.api.requests.reset();
    assert.equal((await rig.provision(claim, copyOf(claim))).kind, 'done');
    assert.deepEqual(asked(), { 'create persistentvolumes': 1 });
  });

  it('makes a volume for a claim that was deleted, which the ordinary deletion reclaims', async () => {
    const claim = await rig.claim();
    await rig.kube.delete(claims, refOf(claim));
    assert.equal((await rig.provision(claim, copyOf(claim))).kind, 'done');
    const volume = (await rig.volumeOf(claim)) as Volume;
    assert.equal(volume.spec.claimRef?.uid, claim.metadata.uid);
    // As the volume controller does with a volume whose claim is gone.
    const released = await rig.setPhase(volume, 'Released');
    assert.equal((await rig.remove(released)).kind, 'done');
    assert.notEqual((await rig.volumeOf(claim))?.metadata.deletionTimestamp, undefined);
    assert.deepEqual(madeFor(claim), []);
  });

  it('reads the claim where an earlier run has begun its volume', async () => {
    const claim = await rig.claim();
    failCreation();
    assert.equal((await rig.provision(claim)).kind, 'running');
    rig.onCall = () => undefined;
    rig.cluster.api.requests.reset();
    assert.equal((await rig.provision(claim, copyOf(claim))).kind, 'done');
    assert.equal(asked()['get persistentvolumeclaims'], 1);
    assert.equal(madeFor(claim).length, 1);
  });

  it('reads the claim all the same where --timeout is shorter than a watch may be silent', async () => {
    const claim = await rig.claim();
    rig.cluster.api.requests.reset();
    const change = { ...copyOf(claim), timeoutMs: 1_000 };
    assert.equal((await rig.provision(claim, change)).kind, 'done');
    assert.equal(asked()['get persistentvolumeclaims'], 1);
  });

  it('is tried again where the claim has changed before its finalizer is written', async () => {
    const claim = await rig.claim();
    const body = { metadata: { labels: { changed: 'yes' } } };
    await rig.kube.patch(claims, refOf(claim), { type: 'merge', body });
    const change = { ...copyOf(claim), usesClaimFinalizer: true };
    assert.equal((await rig.provision(claim, change)).kind, 'later');
    assert.deepEqual(madeFor(claim), []);
  });
});
