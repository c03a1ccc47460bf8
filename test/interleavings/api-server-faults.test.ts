import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { Fault, FaultAction } from '../harness/api-faults.ts';
import { until } from '../harness/until.ts';
import { Story } from './story.ts';

/** Ways in which the API server can fail to answer one request. */
const FAULTS: Readonly<Record<string, FaultAction>> = {
  'answers 409': { kind: 'status', code: 409 },
  'answers 500': { kind: 'status', code: 500 },
  'breaks the connection': { kind: 'reset' },
  'obeys and breaks the connection': { kind: 'lose-answer' },
};

/** Requests in the life of a volume. */
const PLACES: readonly (readonly [
  title: string,
  when: 'create' | 'delete',
  at: Omit<Fault, 'action'>,
])[] = [
  ['the claim is read', 'create', { verb: 'get', plural: 'persistentvolumeclaims' }],
  ['the PV is written', 'create', { verb: 'create', plural: 'persistentvolumes' }],
  ['the PV is read for its deletion', 'delete', { verb: 'get', plural: 'persistentvolumes' }],
  ['the PV is deleted', 'delete', { verb: 'delete', plural: 'persistentvolumes' }],
  ['the finalizer is removed', 'delete', { verb: 'patch', plural: 'persistentvolumes' }],
];

describe('an API server that fails', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  async function released(claim: Claim): Promise<Volume> {
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    return story.released(claim);
  }

  for (const [place, when, at] of PLACES) {
    it(`once, when ${place}, loses no volume, however it fails`, async () => {
      for (const [title, action] of Object.entries(FAULTS)) {
        const claim = await story.rig.claim();
        const volume = when === 'delete' ? await released(claim) : undefined;
        const end = story.rig.cluster.api.faults.inject({ ...at, action });
        await (volume === undefined ? story.rig.provision(claim) : story.rig.remove(volume));
        end();
        await story.runUntilDone(claim).catch((cause: unknown) => {
          throw new Error(`the server ${title}`, { cause });
        });
        if (when === 'create') await story.assertOneVolume(claim);
        else await story.assertNothingLeft(claim);
        assert.ok(story.creates(claim) <= 2, title);
      }
    });
  }

  it('that keeps a PV of its name lets a creation wait, and nothing is left of a claim deleted meanwhile', async () => {
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

  it('for all requests ends runs with later, and has a call under way answered again', async () => {
    const { rig } = story;
    const [waiting, underWay] = [await rig.claim(), await rig.claim()];
    // The journal has it.
    await rig.provision(waiting, { classOf: () => undefined });
    let end: (() => void) | undefined;
    rig.onCall = ({ method }) => {
      if (method === 'CreateVolume')
        // The API server stops answering while the driver works.
        end ??= rig.cluster.api.faults.inject({
          action: { kind: 'status', code: 503 },
          times: Infinity,
        });
    };
    assert.equal((await rig.provision(underWay)).kind, 'retry');
    assert.equal((await rig.provision(waiting)).kind, 'later');
    assert.equal((await rig.provision(underWay)).kind, 'later');
    assert.equal(story.creates(waiting), 0);
    end?.();
    for (const claim of [underWay, waiting]) {
      await story.runUntilDone(claim);
      await story.assertOneVolume(claim);
    }
    assert.equal(story.creates(underWay), 2);
  });
});
