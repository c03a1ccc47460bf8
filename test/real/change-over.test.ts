import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { openChangeOverBed } from '../harness/change-over/bed.ts';
import { changeOverAndBack, type ChangeOverPlan } from '../harness/change-over/scenario.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';

const upstream = process.env['EXTERNAL_PROVISIONER'] ?? '';

const PLANS: Readonly<Record<string, ChangeOverPlan>> = {
  'two bursts of 1,000 claims, the only ingest stopped': {
    claims: 2_000,
    perSecond: 1_000,
    bursts: 2,
    deleteWithinMs: 0,
    end: 'stop',
    turns: [0.25, 0.75],
    turnsBy: 'volumes',
  },
  'claims that are created and deleted, the only ingest killed': {
    claims: 900,
    perSecond: 25,
    bursts: 1,
    deleteWithinMs: 3_000,
    end: 'kill',
    turns: [0.2, 0.7],
    turnsBy: 'claims',
  },
};

const open = realControlPlane(process.env, { binder: true });
const skip = upstream === '' && 'set EXTERNAL_PROVISIONER to the path of its binary';

describe('a change-over to external-provisioner and back', { skip }, () => {
  let plane: RealControlPlane;
  before(async () => (plane = await open()));
  after(() => plane.close());

  for (const [name, plan] of Object.entries(PLANS))
    it(`loses nothing, makes nothing twice and reports leaks: ${name}`, async (t) => {
      const bed = await openChangeOverBed({
        kubeconfig: plane.kubeconfig,
        upstream,
        workerThreads: 20,
        driverDelayMs: 200,
        ingestFlags: ['--audit-min-age=15s'],
      });
      try {
        await bed.startJobs();
        const { made, lost, left, madeTwice, leaked } = await changeOverAndBack(bed, plan);
        t.diagnostic(
          `made ${made.sutler} + ${made.other}, the other leaked ${leaked.other.length}`,
        );
        const faults = { lost, left, madeTwice, leaked: leaked.sutler };
        assert.deepEqual(faults, { lost: [], left: [], madeTwice: [], leaked: [] });
      } finally {
        assert.deepEqual(await bed.close(), []);
      }
    });
});
