import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import type { Fault, FaultAction } from '../../sandbox/api/http/faults.ts';
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

describe('an API server that fails once', () => {
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
    it(`when ${place} loses no volume, however it fails`, async () => {
      for (const [title, action] of Object.entries(FAULTS)) {
        const claim = await story.rig.claim();
        const worker = story.worker();
        const volume = when === 'delete' ? await released(claim) : undefined;
        const end = story.rig.cluster.api.faults.inject({ ...at, action });
        await (volume === undefined
          ? worker.reconcileClaim(claim)
          : worker.reconcileVolume(volume));
        end();
        await story.runUntilDone(claim).catch((cause: unknown) => {
          throw new Error(`the server ${title}`, { cause });
        });
        if (when === 'create') await story.assertOneVolume(claim);
        else await story.assertNothingLeft(claim);
        assert.ok(story.creates(claim).length <= 2, title);
      }
    });
  }
});

describe('an API server that can’t be reached', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  it('ends runs with later, and has a call under way answered again', async () => {
    const [waiting, underWay] = [await story.rig.claim(), await story.rig.claim()];
    const { faults } = story.rig.cluster.api;
    const endFaults: (() => void)[] = [];
    story.script(({ method }) => {
      if (method === 'CreateVolume' && endFaults.length === 0)
        endFaults.push(faults.inject({ action: { kind: 'status', code: 503 }, times: Infinity }));
    });
    const worker = story.worker();
    // The journal has it.
    await story.worker({ classOf: () => undefined }).reconcileClaim(waiting);
    // The API server stops answering while the driver works.
    assert.equal((await worker.reconcileClaim(underWay)).kind, 'retry');
    assert.equal((await worker.reconcileClaim(waiting)).kind, 'later');
    assert.equal((await worker.reconcileClaim(underWay)).kind, 'later');
    assert.equal(story.creates(waiting).length, 0);
    endFaults[0]?.();
    await story.runUntilDone(underWay, worker);
    await story.runUntilDone(waiting, worker);
    await story.assertOneVolume(underWay);
    await story.assertOneVolume(waiting);
    assert.equal(story.creates(underWay).length, 2);
  });
});
