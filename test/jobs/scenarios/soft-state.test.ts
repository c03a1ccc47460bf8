import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CLAIM_FINALIZER } from '#src/kube/keys.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../../sandbox/driver/server.ts';
import { kubeWith, type Parts } from '../parts.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const QUARANTINE_MS = 40_000;

describe('soft state: a Redis whose data ends with the process', () => {
  let rig: Rig;
  let holder: string | undefined;
  let parts: Partial<Parts>;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());

  /** A process has started, with an empty Redis, and leads. */
  const startProcess = async (): Promise<void> => {
    await rig.redis.flushall();
    await redisDataEpochStore(rig.redis, 'csi', DRIVER).begin({
      id: `e-${Date.now()}`,
      quarantineMs: QUARANTINE_MS,
      sequence: 0,
    });
    const records = rig.newRecords({ isSoftState: true, otherHolder: () => holder });
    parts = { records, isSoftState: true, usesClaimFinalizer: true };
  };
  beforeEach(async () => {
    await rig.reset();
    holder = undefined;
    await startProcess();
  });

  const refOf = ({ metadata }: Claim) => ({ namespace: 'default', name: metadata.name });
  const hasOurFinalizer = async (claim: Claim): Promise<boolean> => {
    const now = await rig.kube.get<Claim>(claims, refOf(claim));
    return now?.metadata.finalizers?.includes(CLAIM_FINALIZER) === true;
  };
  const creations = () => rig.driver.calls.filter(({ method }) => method === 'CreateVolume');
  const onCreation = (answer: (call: DriverCall) => unknown): void => {
    rig.onCall = (call) => (call.method === 'CreateVolume' ? answer(call) : undefined);
  };
  /** The call reaches the driver, and its answer no one. */
  const loseAnswers = () =>
    onCreation(async ({ proceed }) => {
      await proceed();
      return new Promise(() => undefined);
    });
  const endQuarantine = () =>
    rig.redis.hset(`{csi}:blessing:${DRIVER}`, { quarantineUntil: Date.now() - 1 });
  /** A creation whose end the process did not learn before it was killed. */
  const beginAndDie = async (): Promise<Claim> => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...parts, timeoutMs: 100 });
    rig.onCall = () => undefined;
    await startProcess();
    return claim;
  };

  it('a claim that nothing was begun for is provisioned at once', async () => {
    const claim = await rig.claim();
    assert.equal((await rig.provision(claim, parts)).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
  });

  it('a claim with our finalizer and no record waits until earlier calls have ended', async () => {
    const claim = await beginAndDie();
    const outcome = await rig.provision(claim, parts);
    assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > QUARANTINE_MS - 5_000);
    assert.equal(creations().length, 1);
  });

  it('then it is sent under the same name, and a refusal proves nothing yet', async () => {
    const claim = await beginAndDie();
    await endQuarantine();
    onCreation(() => {
      throw new DriverStatus(Code.Internal, 'no');
    });
    await rig.provision(claim, parts);
    const [first, second] = creations();
    assert.deepEqual(second?.request, first?.request);
    assert.equal((await rig.record(claim.metadata.uid))['state'], 'suspect');
    assert.equal(await hasOurFinalizer(claim), true);
  });

  it('other claims do not wait for it', async () => {
    const begun = await beginAndDie();
    await rig.provision(begun, parts);
    const other = await rig.claim();
    assert.equal((await rig.provision(other, parts)).kind, 'done');
  });

  it('a claim that the driver refused loses the finalizer, and the next run does not wait', async () => {
    const claim = await rig.claim();
    onCreation(() => {
      throw new DriverStatus(Code.Internal, 'no');
    });
    await rig.provision(claim, parts);
    assert.equal(await hasOurFinalizer(claim), false);
    rig.onCall = () => undefined;
    assert.equal((await rig.provision(claim, parts)).kind, 'done');
  });

  it('a creation that this process left open is sent again without a wait', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...parts, timeoutMs: 100 });
    rig.onCall = () => undefined;
    assert.equal((await rig.provision(claim, parts)).kind, 'later');
    assert.equal(creations().length, 2);
    assert.ok(await rig.volumeOf(claim));
  });

  it('the finalizer stays until an earlier call of unknown end has settled', async () => {
    const claim = await rig.claim();
    loseAnswers();
    await rig.provision(claim, { ...parts, timeoutMs: 100 });
    rig.onCall = () => undefined;
    const outcome = await rig.provision(claim, parts);
    assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 60_000);
    assert.equal(await hasOurFinalizer(claim), true);
    await rig.settle(claim.metadata.uid);
    await rig.provision(claim, parts);
    assert.equal(await hasOurFinalizer(claim), false);
  });

  it('nothing is begun for a claim that is being deleted, since it takes no finalizer', async () => {
    const claim = await rig.claim();
    const body = { metadata: { finalizers: ['example.com/keeps'] } };
    await rig.kube.patch(claims, refOf(claim), { type: 'strategic', body });
    await rig.kube.delete(claims, refOf(claim));
    assert.equal((await rig.provision(claim, parts)).kind, 'done');
    assert.equal(creations().length, 0);
  });

  it('while another process leads, nothing is opened, and what is open is left to it', async () => {
    const fresh = await rig.claim();
    const open = await rig.claim();
    loseAnswers();
    await rig.provision(open, { ...parts, timeoutMs: 100 });
    holder = 'sutler_other';
    await rig.provision(open, parts);
    await rig.provision(fresh, parts);
    assert.equal(creations().length, 1);
    assert.equal(await hasOurFinalizer(open), true);
  });

  it('no call is sent for a claim that changed between the read and the finalizer', async () => {
    const claim = await rig.claim();
    const { kube } = kubeWith(rig, {
      update: async (resource, ref, ...rest) => {
        const body = { metadata: { finalizers: [CLAIM_FINALIZER] } };
        await rig.kube.patch(claims, ref, { type: 'strategic', body });
        return rig.kube.update(resource, ref, ...rest);
      },
    });
    assert.equal((await rig.provision(claim, { ...parts, kube })).kind, 'later');
    assert.equal(creations().length, 0);
  });

  it('a deletion does not wait after a start', async () => {
    const claim = await rig.claim();
    await rig.provision(claim, parts);
    const volume = await rig.volumeOf(claim);
    assert.ok(volume);
    await rig.kube.delete(claims, refOf(claim));
    await startProcess();
    const released = await rig.setPhase(volume, 'Released');
    assert.equal((await rig.remove(released, parts)).kind, 'done');
    assert.equal(rig.driver.calls.at(-1)?.method, 'DeleteVolume');
  });

  it('a claim that an earlier process has bound keeps the finalizer until its calls have settled', async () => {
    const claim = await rig.claim();
    await rig.provision(claim, { ...parts, usesClaimFinalizer: false });
    const body = { metadata: { finalizers: [CLAIM_FINALIZER] } };
    await rig.kube.patch(claims, refOf(claim), { type: 'strategic', body });
    await startProcess();
    await rig.kube.patch(claims, refOf(claim), {
      type: 'merge',
      body: { spec: { volumeName: `pvc-${claim.metadata.uid}` } },
    });
    await rig.provision(claim, parts);
    assert.equal(await hasOurFinalizer(claim), true);
    await endQuarantine();
    const outcome = await rig.provision(claim, parts);
    assert.ok(outcome.kind === 'later' && (outcome.delayMs ?? 0) > 50_000);
    await rig.redis.hset(`{csi}:blessing:${DRIVER}`, { quarantineUntil: Date.now() - 61_000 });
    await rig.provision(claim, parts);
    assert.equal(await hasOurFinalizer(claim), false);
  });
});
