import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, secrets } from '#src/kube/resources.ts';
import type { ProcessorPorts } from '#src/jobs/ports.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  ALPHA_SELECTED_NODE,
  annotatedClaim,
  callsOf,
  claimNow,
  failWith,
  heal,
  loseAnswer,
  messagesOf,
  removeClaim,
  SELECTED_NODE,
  settle,
  stateOf,
  withTopology,
} from '../claim-cases.ts';
import { kubeWith } from '../kube-with.ts';
import { openRig, type Rig } from '../rig.ts';

const refusal = new DriverStatus(Code.Internal, 'no');
const unknownEnd = new DriverStatus(Code.Aborted, 'busy');

/* Upstream keeps claims in a map while a call of unknown end may be at work; here that is an open
 * record (test/jobs/claim-cases.ts). */
describe('the record of a claim', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  /** A claim whose class names a secret that is not there; with `there`, that is. */
  async function claimWithSecret(there: boolean): Promise<Claim> {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const claim = await rig.claim({ parameters });
    const metadata = { name: claim.metadata.name, namespace: 'default' };
    if (there)
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

    it('is open after a call of unknown end (P-19)', async () => {
      const claim = await rig.claim();
      failWith(rig, unknownEnd);
      await rig.provision(claim);
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('is not there after a run that sent nothing (P-20)', async () => {
      const claim = await claimWithSecret(false);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'none');
      assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
    });
  });

  describe('of a call of unknown end', () => {
    it('turns suspect at a refusal, and is gone at one after the settle time (P-21)', async () => {
      const claim = await rig.claim();
      failWith(rig, unknownEnd);
      await rig.provision(claim);
      failWith(rig, refusal);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'suspect');
      await settle(rig, claim);
      assert.equal((await rig.provision(claim)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('stays open after another one (P-22)', async () => {
      const claim = await rig.claim();
      failWith(rig, unknownEnd);
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

    it('turns suspect at InvalidArgument too, and rests (R-10)', async () => {
      const claim = await rig.claim();
      failWith(rig, unknownEnd);
      await rig.provision(claim);
      failWith(rig, new DriverStatus(Code.InvalidArgument, 'no'));
      const outcome = await rig.provision(claim);
      assert.equal(await stateOf(rig, claim), 'suspect');
      assert.ok(outcome.kind === 'retry' && outcome.minDelayMs === rig.ports.retryMaxMs);
    });
  });

  describe('whose claim is gone', () => {
    it('is finished: its PV is written, and nothing is said (P-24, R-38)', async () => {
      const claim = await rig.claim();
      await loseAnswer(rig, claim);
      await removeClaim(rig, claim);
      rig.events.length = 0;
      assert.equal((await rig.provision(claim)).kind, 'done');
      assert.equal((await rig.volumeOf(claim))?.spec.claimRef?.uid, claim.metadata.uid);
      assert.equal(await stateOf(rig, claim), 'stored');
      assert.deepEqual(messagesOf(rig), []);
    });

    it('stays open as long as nothing can be sent, and is tried again (R-39)', async () => {
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

    it('ends for good at a refusal that proves absence', async () => {
      const claim = await rig.claim();
      failWith(rig, unknownEnd);
      await rig.provision(claim);
      await removeClaim(rig, claim);
      await settle(rig, claim);
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
    const refusing = (times: number): Partial<ProcessorPorts> => {
      let left = times;
      return kubeWith(rig, {
        create: (...args) => {
          left -= 1;
          return left < 0 ? rig.kube.create(...args) : Promise.reject(refused);
        },
      });
    };

    it('keeps the driver’s answer, and the claim hears the server’s words (P-12, P-25)', async () => {
      const claim = await rig.claim();
      const never = refusing(Infinity);
      for (const _ of [1, 2, 3]) assert.equal((await rig.provision(claim, never)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'answered');
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
      assert.equal(await rig.volumeOf(claim), undefined);
      const words =
        'the volume was created, but its PersistentVolume could not be written: create persistentvolumes: quota exceeded';
      assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${words}`]);
    });

    it('writes at the third try what the driver said at the first (P-26)', async () => {
      const claim = await rig.claim();
      const twice = refusing(2);
      for (const expected of ['retry', 'retry', 'done'])
        assert.equal((await rig.provision(claim, twice)).kind, expected);
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
      assert.ok(await rig.volumeOf(claim));
      assert.equal(await stateOf(rig, claim), 'stored');
    });

    it('keeps the answer for a claim that is gone, and writes it then', async () => {
      const claim = await rig.claim();
      const once = refusing(1);
      await rig.provision(claim, once);
      await removeClaim(rig, claim);
      assert.equal((await rig.provision(claim, once)).kind, 'done');
      assert.ok(await rig.volumeOf(claim));
      assert.equal(callsOf(rig, 'CreateVolume').length, 1);
    });
  });

  describe('of a claim with a selected node', () => {
    const full = new DriverStatus(Code.ResourceExhausted, 'full');
    const onNode = () => annotatedClaim(rig, { [SELECTED_NODE]: 'node', other: 'kept' });
    const annotationsOf = async (claim: Claim) =>
      (await claimNow(rig, claim))?.metadata.annotations;

    it('is gone where the driver has no room there: the node is given back, nothing else (P-27)', async () => {
      const claim = await onNode();
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'done');
      const { [SELECTED_NODE]: _, ...others } = claim.metadata.annotations ?? {};
      assert.deepEqual(await annotationsOf(claim), others);
      assert.equal(others['other'], 'kept');
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('is gone at another refusal, and the node stays (P-28)', async () => {
      const claim = await onNode();
      failWith(rig, refusal);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('is not there where nothing was sent, and the node stays (P-29)', async () => {
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

    it('is open at a call of unknown end, and the node stays (P-30)', async () => {
      const claim = await onNode();
      failWith(rig, unknownEnd);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'running');
      assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('turns suspect where there is no room after a call of unknown end: the volume may be there, so the node stays', async () => {
      const claim = await onNode();
      failWith(rig, unknownEnd);
      await rig.provision(claim, withTopology(rig));
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, claim), 'suspect');
    });

    it('is tried again on the same node where the claim changed meanwhile (R-06)', async () => {
      const claim = await onNode();
      failWith(rig, full);
      const meanwhile = kubeWith(rig, {
        get: async (...args) => {
          const found = await rig.kube.get(...args);
          // Somebody writes the claim between our read and our patch.
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
      heal(rig);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'done');
    });

    it('is tried again where only the old annotation names the node (R-07)', async () => {
      const claim = await annotatedClaim(rig, { [ALPHA_SELECTED_NODE]: 'node' });
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[ALPHA_SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, claim), 'none');
    });
  });
});
