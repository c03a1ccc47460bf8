import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { CLAIM_FINALIZER, SELECTED_NODE } from '#src/kube/keys.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, secrets } from '#src/kube/resources.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../../sandbox/driver/server.ts';
import { kubeWith, type Parts } from '../parts.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const QUARANTINE_MS = 40_000;
const SETTLE_MS = 60_000;

describe('soft state: a Redis whose data ends with the process', () => {
  let rig: Rig;
  let holder: string | undefined;
  let parts: Partial<Parts>;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());

  const beginData = async (quarantineMs: number): Promise<void> => {
    await rig.redis.flushall();
    const id = `e-${Date.now()}`;
    await redisDataEpochStore(rig.redis, 'csi', DRIVER).begin({ id, quarantineMs, sequence: 0 });
  };
  /** A process has started, with an empty Redis, and leads. */
  const startProcess = async (): Promise<void> => {
    await beginData(QUARANTINE_MS);
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
  const select = (claim: Claim, node: string | null) =>
    rig.kube.patch<Claim>(claims, refOf(claim), {
      type: 'merge',
      body: { metadata: { annotations: { [SELECTED_NODE]: node } } },
    });
  /** The process is killed after the driver made the volume and before a PV names it. */
  const createAndDie = async (claim: Claim, change: Partial<Parts> = {}): Promise<void> => {
    loseAnswers();
    await rig.provision(claim, { ...parts, ...change, timeoutMs: 100 });
    assert.equal(creations().length, 1);
    rig.onCall = () => undefined;
  };
  /** The next process has led for so long that calls of the one before have settled. */
  const settleAll = () =>
    rig.redis.hset(`{csi}:blessing:${DRIVER}`, {
      quarantineUntil: Date.now() - SETTLE_MS - 1_000,
    });
  /** A creation whose end the process did not learn before it was killed. */
  const beginAndDie = async (): Promise<Claim> => {
    const claim = await rig.claim();
    await createAndDie(claim);
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

  it('a living claim whose node was taken back keeps the trace of its volume', async () => {
    const claim = await rig.claim();
    await select(claim, 'node-1');
    const wait: Partial<Parts> = {
      classOf: (name) => {
        const cls = rig.parts.classOf(name);
        return cls && { ...cls, volumeBindingMode: 'WaitForFirstConsumer' };
      },
    };
    await createAndDie(claim, wait);
    await startProcess();
    await settleAll();
    await select(claim, null);
    await rig.provision(claim, { ...parts, ...wait });
    assert.equal(await hasOurFinalizer(claim), true, 'a deletion of the claim leaks the volume');
  });

  it('a read of a secret that the API server could not answer ends no creation of a deleted claim', async () => {
    const claim = await rig.claim({
      parameters: {
        'csi.storage.k8s.io/provisioner-secret-name': 'login',
        'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
      },
    });
    const reading = (secret: () => unknown) =>
      kubeWith(rig, {
        get: (resource, ...rest) =>
          resource === secrets
            ? Promise.resolve().then(() => secret() as never)
            : rig.kube.get(resource, ...rest),
      });
    const metadata = { name: 'login', namespace: 'default', resourceVersion: '1' };
    await createAndDie(
      claim,
      reading(() => ({ metadata, data: {} })),
    );
    await startProcess();
    await settleAll();
    await rig.kube.delete(claims, refOf(claim));
    const down = reading(() => {
      throw new KubeError({ code: 503, reason: 'ServiceUnavailable', serverMessage: 'try again' });
    });
    await rig.provision(claim, { ...parts, ...down });
    assert.equal(await hasOurFinalizer(claim), true, 'the volume leaks');
  });

  it('a claim that may not be updated is not tried again at once, for ever', async () => {
    const claim = await rig.claim();
    // A ValidatingAdmissionPolicy refuses with 422 unless it names another reason.
    const denied = kubeWith(rig, {
      update: () =>
        Promise.reject(
          new KubeError({ code: 422, reason: 'Invalid', serverMessage: 'denied by policy' }),
        ),
    });
    const outcome = await rig.provision(claim, { ...parts, ...denied });
    assert.ok(outcome.kind !== 'later' || outcome.delayMs !== 0, JSON.stringify(outcome));
  });

  it('a process that does not lead any more leaves the finalizer to the one that does', async () => {
    const claim = await rig.claim();
    const { kube } = kubeWith(rig, {
      update: async (resource, ref, ...rest) => {
        const updated = await rig.kube.update<never>(resource, ref, ...rest);
        // It stood still here while another one began to lead, waited and sent its call.
        holder = 'sutler_other';
        return updated;
      },
    });
    await rig.provision(claim, { ...parts, kube });
    assert.equal(creations().length, 0);
    assert.equal(await hasOurFinalizer(claim), true);
  });

  it('the first use of a lasting Redis does not forget what soft state began', async () => {
    const claim = await rig.claim();
    await createAndDie(claim);
    // REDIS_URL is set now. The Lease has no data epoch: a first installation, without quarantine.
    await beginData(0);
    onCreation(() => {
      throw new DriverStatus(Code.ResourceExhausted, 'no room beside the call under way');
    });
    await rig.provision(claim, { records: rig.newRecords(), usesClaimFinalizer: true });
    assert.equal(await hasOurFinalizer(claim), true, 'a refusal counts as proof of absence');
  });

  it('a claim that was bound to another PV meanwhile keeps the trace of its volume', async () => {
    const claim = await rig.claim();
    await createAndDie(claim);
    await startProcess();
    await settleAll();
    const body = { spec: { volumeName: 'a-static-volume' } };
    await rig.kube.patch(claims, refOf(claim), { type: 'merge', body });
    await rig.provision(claim, parts);
    const isNamed = (await rig.volumeOf(claim)) !== undefined || (await hasOurFinalizer(claim));
    assert.ok(isNamed, 'the volume leaks');
  });
});
