import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { secrets } from '#src/kube/resources.ts';
import type { Fault, FaultAction } from '../../sandbox/api/http/faults.ts';
import { Story } from './story.ts';

/** Each way in which the API server can fail to answer one request. */
const FAULTS: readonly { readonly title: string; readonly action: FaultAction }[] = [
  { title: 'answers 409', action: { kind: 'status', code: 409 } },
  { title: 'answers 410', action: { kind: 'status', code: 410 } },
  {
    title: 'answers 429 with Retry-After',
    action: { kind: 'status', code: 429, retryAfterSeconds: 0 },
  },
  { title: 'answers 500', action: { kind: 'status', code: 500 } },
  { title: 'answers 503', action: { kind: 'status', code: 503 } },
  { title: 'breaks the connection', action: { kind: 'reset' } },
  { title: 'obeys and breaks the connection', action: { kind: 'lose-answer' } },
  { title: 'is slow', action: { kind: 'delay', delayMs: 250 } },
];

/** Requests in the life of a volume. */
const PLACES: readonly {
  readonly title: string;
  readonly when: 'create' | 'delete';
  readonly at: Omit<Fault, 'action'>;
}[] = [
  {
    title: 'the claim is read',
    when: 'create',
    at: { verb: 'get', plural: 'persistentvolumeclaims' },
  },
  {
    title: 'the PV is written',
    when: 'create',
    at: { verb: 'create', plural: 'persistentvolumes' },
  },
  {
    title: 'the PV is read for its deletion',
    when: 'delete',
    at: { verb: 'get', plural: 'persistentvolumes' },
  },
  {
    title: 'the PV is deleted',
    when: 'delete',
    at: { verb: 'delete', plural: 'persistentvolumes' },
  },
  {
    title: 'the finalizer is removed',
    when: 'delete',
    at: { verb: 'patch', plural: 'persistentvolumes' },
  },
];

describe('an API server that fails once', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  const inject = (fault: Fault) => story.rig.cluster.api.faults.inject(fault);

  async function released(claim: Claim): Promise<Volume> {
    await story.runUntilDone(claim);
    await story.deleteClaim(claim);
    return story.released(claim);
  }

  for (const place of PLACES) {
    it(`when ${place.title} loses no volume, however it fails`, async () => {
      for (const { title, action } of FAULTS) {
        const claim = await story.rig.claim();
        const worker = story.worker();
        const volume = place.when === 'delete' ? await released(claim) : undefined;
        const end = inject({ ...place.at, action });
        await (volume === undefined
          ? worker.reconcileClaim(claim)
          : worker.reconcileVolume(volume));
        end();
        await story.runUntilDone(claim).catch((cause: unknown) => {
          throw new Error(`the server ${title}`, { cause });
        });
        if (place.when === 'create') await story.assertOneVolume(claim);
        else await story.assertNothingLeft(claim);
        assert.ok(story.creates(claim).length <= 2, title);
      }
    });
  }

  it('when a secret is read sends and begins nothing', async () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': 'credentials',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    const metadata = { name: 'credentials', namespace: 'default' };
    await story.rig.kube.create(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata,
      data: {},
    });
    const claim = await story.rig.claim({ parameters });
    inject({ verb: 'get', plural: 'secrets', action: { kind: 'status', code: 500 } });
    assert.notEqual((await story.worker().reconcileClaim(claim)).kind, 'done');
    assert.equal(await story.rig.doubtMs(claim), undefined);
    const volume = await released(claim);
    inject({ verb: 'get', plural: 'secrets', action: { kind: 'status', code: 500 } });
    assert.notEqual((await story.worker().reconcileVolume(volume)).kind, 'done');
    assert.equal(await story.rig.doubtMs(volume), undefined);
    assert.equal(story.deletes().length, 0);
    await story.runUntilDone(claim);
    await story.assertNothingLeft(claim);
  });
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
