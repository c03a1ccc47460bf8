import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, secrets } from '#src/kube/resources.ts';
import { kubeWith, type Parts } from '../parts.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  ALPHA_SELECTED_NODE,
  annotatedClaim,
  callsOf,
  claimNow,
  endFaults,
  failWith,
  loseAnswer,
  messagesOf,
  passSettleTime,
  removeClaim,
  SELECTED_NODE,
  stateOf,
  withTopology,
} from '../claim-cases.ts';
import { openRig, type Rig } from '../rig.ts';

const refusal = new DriverStatus(Code.Internal, 'no');
const ambiguous = new DriverStatus(Code.Aborted, 'busy');

/* Upstream keeps claims in a map while an ambiguous call may be at work; here that is an open
 * record (test/jobs/claim-cases.ts). */
describe('the record of a claim', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  /** Creates a claim whose class names a secret, and the secret if it should exist. */
  async function claimWithSecret(shouldExist: boolean): Promise<Claim> {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const claim = await rig.claim({ parameters });
    const metadata = { name: claim.metadata.name, namespace: 'default' };
    if (shouldExist)
      await rig.kube.create(secrets, 'default', {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata,
        data: {},
      });
    return claim;
  }
  const removeSecret = ({ metadata: { name } }: Claim) =>
    rig.kube.delete(secrets, { namespace: 'default', name });

  describe('of a first call', () => {
    it('is gone after a refusal (P-18)', async () => {
      const claim = await rig.claim();
      failWith(rig, refusal);
      await rig.provision(claim);
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('is open after an ambiguous call (P-19)', async () => {
      const claim = await rig.claim();
      failWith(rig, ambiguous);
      await rig.provision(claim);
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('does not exist after a run that sent nothing (P-20)', async () => {
      const claim = await claimWithSecret(false);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'none');
      assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
    });
  });

  describe('of an ambiguous call', () => {
    it('is suspect after a refusal, and gone after one past the settle time (P-21)', async () => {
      const claim = await rig.claim();
      failWith(rig, ambiguous);
      await rig.provision(claim);
      failWith(rig, refusal);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'suspect');
      await passSettleTime(rig, claim);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('stays open after another one (P-22)', async () => {
      const claim = await rig.claim();
      failWith(rig, ambiguous);
      await rig.provision(claim);
      await rig.provision(claim);
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('stays open after a run that sent nothing (P-23)', async () => {
      const claim = await claimWithSecret(true);
      await loseAnswer(rig, claim);
      await removeSecret(claim);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'open');
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
    });

    it('is suspect after InvalidArgument too, with the longest delay (R-10)', async () => {
      const claim = await rig.claim();
      failWith(rig, ambiguous);
      await rig.provision(claim);
      failWith(rig, new DriverStatus(Code.InvalidArgument, 'no'));
      const outcome = await rig.provision(claim);
      assert.equal(await stateOf(rig, claim), 'suspect');
      assert.ok(outcome.kind === 'retry' && outcome.minDelayMs === rig.parts.retryMaxMs);
    });
  });

  describe('whose claim is gone', () => {
    it('is finished: its PV is written, without an event (P-24, R-38)', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      await removeClaim(rig, claim);
      rig.events.length = 0;
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.equal((await rig.volumeOf(claim))?.spec.claimRef?.uid, claim.metadata.uid);
      assert.equal(await stateOf(rig, claim), 'stored');
      assert.deepEqual(messagesOf(rig), []);
    });

    it('stays open and is retried while nothing can be sent (R-39)', async () => {
      const claim = await claimWithSecret(true);
      await loseAnswer(rig, claim);
      await removeSecret(claim);
      await removeClaim(rig, claim);
      for (const _ of [1, 2]) {
        assert.equal((await rig.provision(claim)).kind, 'retry');
        assert.equal(await stateOf(rig, claim), 'open');
      }
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
    });

    it('is gone after a refusal that proves absence', async () => {
      const claim = await rig.claim();
      failWith(rig, ambiguous);
      await rig.provision(claim);
      await removeClaim(rig, claim);
      await passSettleTime(rig, claim);
      failWith(rig, refusal);
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.equal(await stateOf(rig, claim), 'none');
    });
  });

  describe('of a volume whose PV can’t be written', () => {
    const refused = new KubeError({
      code: 403,
      reason: 'Forbidden',
      serverMessage: 'quota exceeded',
      request: 'create persistentvolumes',
    });
    const refusing = (times: number): Partial<Parts> => {
      let left = times;
      return kubeWith(rig, {
        create: (...args) => {
          left -= 1;
          return left < 0 ? rig.kube.create(...args) : Promise.reject(refused);
        },
      });
    };

    it('keeps the driver’s answer, and the server’s message is reported (P-12, P-25)', async () => {
      const claim = await rig.claim();
      const never = refusing(Infinity);
      for (const _ of [1, 2, 3]) assert.equal((await rig.provision(claim, never)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'answered');
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
      assert.equal(await rig.volumeOf(claim), undefined);
      const message =
        'the volume was created, but its PersistentVolume could not be written: ' +
        'create persistentvolumes: quota exceeded';
      assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${message}`]);
    });

    it('writes in the third run what the driver answered in the first (P-26)', async () => {
      const claim = await rig.claim();
      const twice = refusing(2);
      for (const expected of ['retry', 'retry', 'done'])
        assert.equal((await rig.provision(claim, twice)).kind, expected);
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
      assert.ok(await rig.volumeOf(claim));
      assert.equal(await stateOf(rig, claim), 'stored');
    });
  });

  describe('of a claim with a selected node', () => {
    const full = new DriverStatus(Code.ResourceExhausted, 'full');
    const onNode = () => annotatedClaim(rig, { [SELECTED_NODE]: 'node', other: 'kept' });
    const annotationsOf = async (claim: Claim) =>
      (await claimNow(rig, claim))?.metadata.annotations;

    it('is gone if the node has no room; only the selected node is removed (P-27)', async () => {
      const claim = await onNode();
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'done');
      const { [SELECTED_NODE]: _, ...others } = claim.metadata.annotations ?? {};
      assert.deepEqual(await annotationsOf(claim), others);
      assert.equal(others['other'], 'kept');
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('is gone too if the run added the claim finalizer before the call', async () => {
      const claim = await onNode();
      failWith(rig, full);
      const parts = { ...withTopology(rig), usesClaimFinalizer: true };
      assert.equal((await rig.provision(claim, parts)).kind, 'done');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], undefined);
    });

    it('is gone after another refusal, and the node stays (P-28)', async () => {
      const claim = await onNode();
      failWith(rig, refusal);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('does not exist if nothing was sent, and the node stays (P-29)', async () => {
      const secretless = await claimWithSecret(false);
      const { namespace = '', name } = secretless.metadata;
      await rig.kube.patch(
        claims,
        { namespace, name },
        { type: 'merge', body: { metadata: { annotations: { [SELECTED_NODE]: 'node' } } } },
      );
      assert.equal((await rig.provision(secretless, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(secretless))?.[SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, secretless), 'none');
    });

    it('is open after an ambiguous call, and the node stays (P-30)', async () => {
      const claim = await onNode();
      failWith(rig, ambiguous);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'running');
      assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('is suspect if there is no room after an ambiguous call, and the node stays', async () => {
      const claim = await onNode();
      failWith(rig, ambiguous);
      await rig.provision(claim, withTopology(rig));
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, claim), 'suspect');
    });

    it('is retried on the same node if the claim changed meanwhile (R-06)', async () => {
      const claim = await onNode();
      failWith(rig, full);
      const meanwhile = kubeWith(rig, {
        get: async (...args) => {
          const found = await rig.kube.get(...args);
          // The claim is edited between our read and our patch.
          if (args[0].plural === 'persistentvolumeclaims')
            await rig.kube.patch(args[0], args[1], {
              type: 'merge',
              body: { metadata: { labels: { changed: 'meanwhile' } } },
            });
          return found as never;
        },
      });
      const outcome = await rig.provision(claim, { ...withTopology(rig), ...meanwhile });
      assert.ok(
        outcome.kind === 'retry' &&
          outcome.reason === 'rpc error: code = ResourceExhausted desc = full',
      );
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      endFaults(rig);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'done');
    });

    it('is retried if only the old annotation names the node (R-07)', async () => {
      const claim = await annotatedClaim(rig, { [ALPHA_SELECTED_NODE]: 'node' });
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[ALPHA_SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, claim), 'none');
    });
  });
});
