import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { keyOf } from '../jobs/rig.ts';
import { Pause, Story } from './story.ts';
import { until } from '../harness/until.ts';

/* A worker pauses at a given place, as after SIGSTOP or during a long pause of its machine. */
describe('a worker that was frozen', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  it('between answer and PV writes it all the same, and what nobody wants is reclaimed', async () => {
    const claim = await story.rig.claim();
    const pause = new Pause();
    const parts = story.kubeWith({
      create: async (...args) => {
        await pause.wait();
        return story.rig.kube.create(...args);
      },
    });
    const frozen = story.worker(parts).reconcileClaim(claim);
    await pause.reached;
    await story.rig.jobs.loseLock(keyOf(claim));
    await story.deleteClaim(claim);
    pause.resume();
    await frozen;
    await story.released(claim);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(story.deletes().length, 1);
  });
});

describe('a PV that is being deleted', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  /** Creates a PV of the claim's name that is being deleted, until the returned function is called.
   */
  async function createDeletedPv(claim: Claim): Promise<() => Promise<unknown>> {
    const { kube } = story.rig;
    const name = `pvc-${claim.metadata.uid}`;
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      csi: { driver: 'other', volumeHandle: 'foreign' },
    };
    await kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name, finalizers: ['example.com/keep'] },
      spec,
    });
    await kube.delete(volumes, { name });
    return async () => {
      const body = { metadata: { finalizers: null } };
      await kube.patch(volumes, { name }, { type: 'merge', body });
      await until(async () => (await story.rig.volumeOf(claim)) === undefined, 'it is gone');
    };
  }

  it('delays the creation of its name, of which nothing is left when the claim is deleted', async () => {
    const claim = await story.rig.claim();
    const removeFinalizer = await createDeletedPv(claim);
    const outcome = await story.worker().reconcileClaim(claim);
    assert.ok(outcome.kind === 'later' && outcome.reason.includes('being deleted'));
    await story.deleteClaim(claim);
    assert.equal((await story.worker().reconcileClaim(claim)).kind, 'later');
    await removeFinalizer();
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
  });
});
