import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { volumes } from '#src/kube/resources.ts';
import { keyOf } from '../jobs/rig.ts';
import { Story } from './story.ts';
import { until } from '../harness/until.ts';

describe('the PV of a creation', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  it('is written by a worker that was frozen after the answer, and reclaimed if nobody wants it', async () => {
    const { rig } = story;
    const claim = await rig.claim();
    let resume: () => void = () => undefined;
    const resumed = new Promise<void>((resolve) => (resume = resolve));
    let isFrozen = false;
    // As after SIGSTOP, or during a long pause of its machine.
    const parts = rig.kubeWith({
      async create(...args) {
        isFrozen = true;
        await resumed;
        return rig.kube.create(...args);
      },
    });
    const frozen = rig.provision(claim, parts);
    await until(() => isFrozen, 'the driver has answered');
    await rig.jobs.loseLock(keyOf(claim));
    await story.deleteClaim(claim);
    resume();
    await frozen;
    await story.released(claim);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
    assert.equal(rig.countDeletions(), 1);
  });

  it('waits for another of its name to be gone; nothing is left of a claim that was deleted meanwhile', async () => {
    const { rig } = story;
    const claim = await rig.claim();
    const name = `pvc-${claim.metadata.uid}`;
    await rig.kube.create(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name, finalizers: ['example.com/keep'] },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        csi: { driver: 'other', volumeHandle: 'foreign' },
      },
    });
    await rig.kube.delete(volumes, { name });
    const outcome = await rig.provision(claim);
    assert.ok(outcome.kind === 'later' && outcome.reason.includes('being deleted'));
    await story.deleteClaim(claim);
    assert.equal((await rig.provision(claim)).kind, 'later');
    const body = { metadata: { finalizers: null } };
    await rig.kube.patch(volumes, { name }, { type: 'merge', body });
    await until(async () => (await rig.volumeOf(claim)) === undefined, 'it is gone');
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
  });
});
