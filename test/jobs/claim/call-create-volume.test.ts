import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code, type CodeName } from '#src/csi/status.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  annotatedClaim,
  claimNow,
  failWith,
  messagesOf,
  SELECTED_NODE,
  stateOf,
  withTopology,
} from '../claim-cases.ts';
import { openRig, type Rig } from '../rig.ts';

/** Codes with the case numbers of their four combinations of topology and selected node. */
const CODES: readonly (readonly [CodeName, string, string, string, string])[] = [
  ['Canceled', 'E-05', 'E-06', 'E-07', 'E-08'],
  ['DeadlineExceeded', 'E-09', 'E-10', 'E-11', 'E-12'],
  ['Unavailable', 'E-13', 'E-14', 'E-15', 'E-16'],
  ['Aborted', 'E-17', 'E-18', 'E-19', 'E-20'],
  ['ResourceExhausted', 'E-21', 'E-22', 'E-23', 'E-24'],
  ['Unknown', 'E-25', 'E-26', 'E-27', 'E-28'],
  ['InvalidArgument', 'E-29', 'E-30', 'E-31', 'E-32'],
  ['NotFound', 'E-33', 'E-34', 'E-35', 'E-36'],
  ['AlreadyExists', 'E-37', 'E-38', 'E-39', 'E-40'],
  ['PermissionDenied', 'E-41', 'E-42', 'E-43', 'E-44'],
  ['FailedPrecondition', 'E-45', 'E-46', 'E-47', 'E-48'],
  ['OutOfRange', 'E-49', 'E-50', 'E-51', 'E-52'],
  ['Unimplemented', 'E-53', 'E-54', 'E-55', 'E-56'],
  ['Internal', 'E-57', 'E-58', 'E-59', 'E-60'],
  ['DataLoss', 'E-61', 'E-62', 'E-63', 'E-64'],
  ['Unauthenticated', 'E-65', 'E-66', 'E-67', 'E-68'],
];
const COMBINATIONS = [
  { hasTopology: false, hasNode: false },
  { hasTopology: false, hasNode: true },
  { hasTopology: true, hasNode: false },
  { hasTopology: true, hasNode: true },
] as const;

/** Upstream's states. Finished: nothing is begun, and the claim is retried. InBackground: a call
 * may be at work. Reschedule: the scheduler is asked for another node. */
type State = 'Finished' | 'InBackground' | 'Reschedule';

/** Upstream takes AlreadyExists for final; here the volume of that name may be ours (invariant
 * 6). */
const IN_BACKGROUND: readonly CodeName[] = [
  'Canceled',
  'DeadlineExceeded',
  'Unavailable',
  'Aborted',
  'AlreadyExists',
];

function expected(code: CodeName, { hasTopology, hasNode }: (typeof COMBINATIONS)[number]): State {
  if (IN_BACKGROUND.includes(code)) return 'InBackground';
  return code === 'ResourceExhausted' && hasTopology && hasNode ? 'Reschedule' : 'Finished';
}

describe('a CreateVolume that fails', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  for (const [code, ...ids] of CODES) {
    for (const [column, combination] of COMBINATIONS.entries()) {
      const { hasTopology, hasNode } = combination;
      const state = expected(code, combination);
      const [topology, node] = [hasTopology, hasNode].map((has) => (has ? 'yes' : 'no'));
      const id = ids[column];
      it(`with ${code}, topology ${topology}, node ${node}, is ${state} (${id})`, async () => {
        const claim = await annotatedClaim(rig, hasNode ? { [SELECTED_NODE]: 'node' } : {});
        failWith(rig, new DriverStatus(Code[code], 'no'));
        const outcome = await rig.provision(claim, hasTopology ? withTopology(rig) : {});

        assert.equal(await rig.volumeOf(claim), undefined, 'no PV');
        assert.equal(messagesOf(rig).length, 1);
        assert.match(
          messagesOf(rig)[0] ?? '',
          new RegExp(`^Warning ProvisioningFailed .*rpc error: code = ${code} desc = no$`),
        );
        assert.equal(await stateOf(rig, claim), state === 'InBackground' ? 'open' : 'none');
        const isNodeLeft =
          (await claimNow(rig, claim))?.metadata.annotations?.[SELECTED_NODE] !== undefined;
        assert.equal(isNodeLeft, hasNode && state !== 'Reschedule');
        // Without a node the claim waits for the scheduler's choice; otherwise it is retried.
        assert.equal(outcome.kind === 'done', state === 'Reschedule');
        if (outcome.kind !== 'done')
          assert.ok('reason' in outcome && outcome.reason.includes(`code = ${code} desc = no`));
      });
    }
  }
});
