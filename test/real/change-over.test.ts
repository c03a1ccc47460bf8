import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Closers } from '#src/runtime/closers.ts';
import { type ChangeOverBed, openChangeOverBed } from '../harness/change-over/bed.ts';
import {
  changeOverAndBack,
  type ChangeOverPlan,
  type ChangeOverResult,
} from '../harness/change-over/scenario.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';

const upstream = process.env['EXTERNAL_PROVISIONER'] ?? '';
/** How often each change-over is repeated. */
const ROUNDS = Number(process.env['CHANGE_OVER_ROUNDS'] ?? '1');
const ONLY = new RegExp(process.env['CHANGE_OVER_ONLY'] ?? '');

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
  'claims that are created and deleted, the only ingest stopped': {
    claims: 900,
    perSecond: 25,
    bursts: 1,
    deleteWithinMs: 3_000,
    end: 'stop',
    turns: [0.3, 0.6],
    turnsBy: 'claims',
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

if (upstream === '') {
  process.stdout.write(
    'change-over to external-provisioner and back: not tested; ' +
      'set EXTERNAL_PROVISIONER to the path of its binary\n',
  );
} else {
  const open = realControlPlane(process.env, { binder: true });
  describe('a change-over to external-provisioner and back', () => {
    const closers = new Closers();
    let kubeconfig: string;
    before(async () => {
      const plane = await open();
      closers.add('cluster', () => plane.close());
      ({ kubeconfig } = plane);
    });
    after(async () => {
      assert.deepEqual(await closers.close(), []);
    });

    for (const [name, plan] of Object.entries(PLANS))
      for (let round = 1; round <= ROUNDS; round += 1)
        if (ONLY.test(name))
          it(`loses nothing, makes nothing twice and reports leaks: ${name} (round ${round})`, async () => {
            const bed = await openChangeOverBed({
              kubeconfig,
              upstream,
              workerThreads: 20,
              driverDelayMs: 200,
              ingestFlags: ['--audit-min-age=15s'],
            });
            try {
              judge(name, await play(bed, plan));
            } finally {
              assert.deepEqual(await bed.close(), []);
            }
          });
  });
}

async function play(bed: ChangeOverBed, plan: ChangeOverPlan): Promise<ChangeOverResult> {
  await bed.startJobs();
  return changeOverAndBack(bed, plan);
}

function judge(name: string, result: ChangeOverResult): void {
  const { made, lost, left, madeTwice, madeAgain, leaked } = result;
  process.stdout.write(
    `${name}: made ${made.sutler} + ${made.other}, lost ${lost.length}, left ${left.slice(0, 3).join(', ') || 0}, ` +
      `twice ${madeTwice.length}, again ${madeAgain.join(' ') || 0}, ` +
      `leaked ${leaked.sutler.length} + ${leaked.other.length} by the other\n`,
  );
  assert.deepEqual(lost, []);
  assert.deepEqual(left, []);
  assert.deepEqual(madeTwice, []);
  assert.deepEqual(leaked.sutler, []);
}
