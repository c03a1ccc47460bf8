import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  ALPHA_SELECTED_NODE,
  annotatedClaim,
  callsOf,
  claimNow,
  endFaults,
  failWith,
  messagesOf,
  SELECTED_NODE,
  stateOf,
  withTopology,
} from '../claim-cases.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

const refusal = new DriverStatus(Code.Internal, 'no');
const ambiguous = new DriverStatus(Code.Aborted, 'busy');
const full = new DriverStatus(Code.ResourceExhausted, 'full');

describe('a creation that fails', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  it('with InvalidArgument in doubt, stays in doubt and has the longest delay (R-10)', async () => {
    const claim = await rig.claim();
    failWith(rig, ambiguous);
    await rig.provision(claim);
    failWith(rig, new DriverStatus(Code.InvalidArgument, 'no'));
    const outcome = await rig.provision(claim);
    assert.equal(await stateOf(rig, claim), 'open');
    assert.ok(outcome.kind === 'retry' && outcome.minDelayMs === rig.parts.retryMaxMs);
  });

  describe('since its PV can’t be written', () => {
    const refused = new KubeError({
      code: 403,
      reason: 'Forbidden',
      serverMessage: 'quota exceeded',
      request: 'create persistentvolumes',
    });
    const refusing = (times: number): Partial<Dependencies> => {
      let left = times;
      return kubeWith(rig, {
        create: (...args) => {
          left -= 1;
          return left < 0 ? rig.kube.create(...args) : Promise.reject(refused);
        },
      });
    };
    const sameAnswer = (): void => {
      const [first, ...others] = callsOf(rig, 'CreateVolume').map(({ request }) => request);
      for (const each of others) assert.deepEqual(each, first);
    };

    it('has no PV, and the server’s message is reported once (P-12, P-25)', async () => {
      const claim = await rig.claim();
      const never = refusing(Infinity);
      for (const _ of [1, 2, 3]) assert.equal((await rig.provision(claim, never)).kind, 'retry');
      assert.equal(await stateOf(rig, claim), 'open');
      assert.equal(await rig.volumeOf(claim), undefined);
      assert.equal(messagesOf(rig).length, 1);
      assert.match(messagesOf(rig)[0] ?? '', /^Warning ProvisioningFailed .*quota exceeded$/);
      sameAnswer();
    });

    it('has the driver answer again, and the third run writes it (P-26)', async () => {
      const claim = await rig.claim();
      const twice = refusing(2);
      for (const _ of [1, 2]) assert.equal((await rig.provision(claim, twice)).kind, 'retry');
      await rig.endDoubt(claim);
      assert.equal((await rig.provision(claim, twice)).kind, 'done');
      sameAnswer();
      assert.ok(await rig.volumeOf(claim));
    });
  });

  describe('on the selected node', () => {
    const onNode = () => annotatedClaim(rig, { [SELECTED_NODE]: 'node', other: 'kept' });
    const annotationsOf = async (claim: Claim) =>
      (await claimNow(rig, claim))?.metadata.annotations;

    it('for want of room, is as if never begun; only the node is removed (P-27)', async () => {
      const claim = await onNode();
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'done');
      const { [SELECTED_NODE]: _, ...others } = claim.metadata.annotations ?? {};
      assert.deepEqual(await annotationsOf(claim), others);
      assert.equal(others['other'], 'kept');
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('for another reason, is as if never begun, and the node stays (P-28)', async () => {
      const claim = await onNode();
      failWith(rig, refusal);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('since its secret is missing, begins nothing, and the node stays (P-29)', async () => {
      const parameters = {
        'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
        'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
      };
      const claim = await rig.claim({ parameters });
      const { namespace = '', name } = claim.metadata;
      await rig.kube.patch(
        claims,
        { namespace, name },
        { type: 'merge', body: { metadata: { annotations: { [SELECTED_NODE]: 'node' } } } },
      );
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, claim), 'none');
    });

    it('with an unknown end, is in doubt, and the node stays (P-30)', async () => {
      const claim = await onNode();
      failWith(rig, ambiguous);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'running');
      assert.deepEqual(await annotationsOf(claim), claim.metadata.annotations);
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('for want of room in doubt, stays in doubt, and the node stays', async () => {
      const claim = await onNode();
      failWith(rig, ambiguous);
      await rig.provision(claim, withTopology(rig));
      failWith(rig, full);
      assert.equal((await rig.provision(claim, withTopology(rig))).kind, 'retry');
      assert.equal((await annotationsOf(claim))?.[SELECTED_NODE], 'node');
      assert.equal(await stateOf(rig, claim), 'open');
    });

    it('is retried on the same node if the claim changed meanwhile (R-06)', async () => {
      const claim = await onNode();
      failWith(rig, full);
      const meanwhile = kubeWith(rig, {
        get: async (...args) => {
          const found = await rig.kube.get(...args);
          // The claim is edited between our read and our update.
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
