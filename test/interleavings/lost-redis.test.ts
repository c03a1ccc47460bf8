import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim } from '#src/kube/objects.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { Pause, Story } from './story.ts';

const D_MS = 60_000;

describe('FLUSHALL while a call is under way and its claim is deleted', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  /** The driver pauses in a call, with or without the volume; its claim and all data of Redis are
   * deleted meanwhile, and a leader begins anew.
   * @returns lets the driver go on; resolves when the run has ended */
  async function loseRedis(claim: Claim): Promise<() => Promise<Outcome>> {
    const pause = new Pause();
    story.script(({ method }) => (method === 'CreateVolume' ? pause.wait() : undefined));
    const run = story.worker().reconcileClaim(claim);
    await pause.reached;
    await story.deleteClaim(claim);
    await story.rig.redis.flushall();
    story.script(() => undefined);
    await story.rig.jobs.begin();
    return () => {
      pause.resume();
      return run;
    };
  }
  /** The first run of the job that the new leader adds for the journal's entry. */
  const runAgain = (claim: Claim) => story.rig.provision(claim, {}, { doubtMs: D_MS });

  it('writes the PV of the answer; the next job finds it, and it is deleted after that', async () => {
    const claim = await story.rig.claim();
    const goOn = await loseRedis(claim);
    await goOn();
    await story.released(claim);
    assert.equal((await runAgain(claim)).kind, 'later');
    assert.equal(story.creates(claim).length, 1);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
  });

  it('deletes the volume whose answer never came', async () => {
    const claim = await story.rig.claim();
    await story.loseAnswer(claim);
    await story.deleteClaim(claim);
    await story.rig.redis.flushall();
    await story.rig.jobs.begin();
    assert.equal((await runAgain(claim)).kind, 'later');
    assert.ok(await story.rig.volumeOf(claim), 'the journal says what was asked for');
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });

  it('deletes the volume of a call that ends only after the next job has begun', async () => {
    const claim = await story.rig.claim();
    const goOn = await loseRedis(claim);
    await runAgain(claim);
    await goOn();
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
  });
});
