import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { CodeName } from '#src/csi/status.ts';
import { DriverStatus } from '#src/sandbox/driver/driver-status.ts';
import { annotatedClaim, claimNow, failWith, messagesOf, SELECTED_NODE, stateOf, withTopology } from './claim-cases.ts';
import { openRig } from './rig.ts';
import type { Rig } from './rig.ts';

/** In the order of the catalogue (06 E); each with the four combinations of topology and selected node. */
const CODES: readonly CodeName[] = [
  'Canceled',
  'DeadlineExceeded',
  'Unavailable',
  'Aborted',
  'ResourceExhausted',
  'Unknown',
  'InvalidArgument',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'FailedPrecondition',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'DataLoss',
  'Unauthenticated',
];
const COMBINATIONS = [
  { hasTopology: false, hasNode: false },
  { hasTopology: false, hasNode: true },
  { hasTopology: true, hasNode: false },
  { hasTopology: true, hasNode: true },
] as const;
const FIRST_ID = 5;

/** Finished: no open record, and tried again. InBackground: open. Reschedule: the scheduler is asked for another node. */
type State = 'Finished' | 'InBackground' | 'Reschedule';

/** Upstream takes AlreadyExists for final; to us the name is taken by a volume that may be ours (design invariant 6). */
const IN_BACKGROUND: readonly CodeName[] = ['Canceled', 'DeadlineExceeded', 'Unavailable', 'Aborted', 'AlreadyExists'];

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

  for (const [row, code] of CODES.entries()) {
    for (const [column, combination] of COMBINATIONS.entries()) {
      const { hasTopology, hasNode } = combination;
      const state = expected(code, combination);
      const id = `E-${String(FIRST_ID + 4 * row + column).padStart(2, '0')}`;
      it(`with ${code}, topology ${hasTopology ? 'yes' : 'no'}, node ${hasNode ? 'yes' : 'no'}, is ${state} (${id})`, async () => {
        const claim = await annotatedClaim(rig, hasNode ? { [SELECTED_NODE]: 'node' } : {});
        failWith(rig, new DriverStatus(Code[code], 'no'));
        const outcome = await rig.provision(claim, hasTopology ? withTopology(rig) : {});

        assert.equal(await rig.volumeOf(claim), undefined, 'no PV');
        assert.equal(messagesOf(rig).length, 1);
        assert.match(messagesOf(rig)[0] ?? '', new RegExp(`^Warning ProvisioningFailed .*rpc error: code = ${code} desc = no$`));
        assert.equal(await stateOf(rig, claim), state === 'InBackground' ? 'open' : 'none');
        const isNodeLeft = (await claimNow(rig, claim))?.metadata.annotations?.[SELECTED_NODE] !== undefined;
        assert.equal(isNodeLeft, hasNode && state !== 'Reschedule');
        // Without a node the claim rests until the scheduler has chosen another one; else it comes again.
        assert.equal(outcome.kind === 'done', state === 'Reschedule');
        if (outcome.kind !== 'done') assert.ok('reason' in outcome && outcome.reason.includes(`code = ${code} desc = no`));
      });
    }
  }
});
