import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { secrets, volumes } from '#src/kube/resources.ts';
import type { Fault, FaultAction } from '../../sandbox/api/http/faults.ts';
import { Story } from './story.ts';
import { until } from '../harness/until.ts';

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
    await until(
      async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
      'the volume is released',
    );
    return (await story.rig.volumeOf(claim)) as Volume;
  }

  for (const place of PLACES) {
    it(`when ${place.title} loses no volume and repeats no call, however it fails`, async () => {
      for (const { title, action } of FAULTS) {
        const claim = await story.rig.claim();
        const worker = story.worker();
        const volume = place.when === 'delete' ? await released(claim) : undefined;
        const [made, deleted] = [story.creates(claim).length, story.deletes().length];
        inject({ ...place.at, action });
        const run = () =>
          volume === undefined ? worker.reconcileClaim(claim) : worker.reconcileVolume(volume);
        await until(
          async () => (await run()).kind === 'done',
          `it is done although the server ${title}`,
        );
        await story.runUntilDone(claim, worker);
        if (volume === undefined) {
          await story.assertOneVolume(claim);
          assert.equal(story.creates(claim).length, made + 1, title);
        } else {
          await story.assertNothingLeft(claim);
          assert.equal(story.deletes().length, deleted + 1, title);
        }
      }
    });
  }

  it('when the PV is read before a replay leaves the record without an owner', async () => {
    const claim = await story.rig.claim();
    await story.loseAnswer(claim);
    inject({ verb: 'get', plural: 'persistentvolumes', action: { kind: 'status', code: 500 } });
    const worker = story.worker();
    assert.equal((await worker.reconcileClaim(claim)).kind, 'later');
    const record = await story.record(claim);
    assert.deepEqual([record['owner'], record['state'], record['n']], ['', 'creating', '1']);
    assert.equal((await story.worker().reconcileClaim(claim)).kind, 'done');
    await story.assertOneVolume(claim);
  });

  it('when a PV of the same name is read keeps the answer, and no owner', async () => {
    const claim = await story.rig.claim();
    const name = `pvc-${claim.metadata.uid}`;
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      csi: { driver: 'other', volumeHandle: 'foreign' },
    };
    await story.rig.kube.create<Volume>(volumes, undefined, {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name },
      spec,
    });
    inject({ verb: 'get', plural: 'persistentvolumes', action: { kind: 'status', code: 500 } });
    const worker = story.worker();
    assert.equal((await worker.reconcileClaim(claim)).kind, 'later');
    const record = await story.record(claim);
    assert.equal(record['owner'], '');
    assert.notEqual(record['ans'] ?? '', '');
    await story.rig.kube.delete(volumes, { name });
    await until(
      async () => (await story.rig.volumeOf(claim)) === undefined,
      'the other PV is gone',
    );
    await story.runUntilDone(claim);
    await story.assertOneVolume(claim);
    assert.equal(story.creates(claim).length, 1);
  });

  it('when a secret is read sends nothing, and leaves the record as it was', async () => {
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
    assert.deepEqual(await story.record(claim), {});
    const volume = await released(claim);
    inject({ verb: 'get', plural: 'secrets', action: { kind: 'status', code: 500 } });
    assert.notEqual((await story.worker().reconcileVolume(volume)).kind, 'done');
    assert.equal((await story.record(claim))['state'], 'stored');
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

  it('ends runs with later, and keeps the answer of a call under way', async () => {
    const [waiting, underWay] = [await story.rig.claim(), await story.rig.claim()];
    const { faults } = story.rig.cluster.api;
    const endFaults: (() => void)[] = [];
    story.script(({ method }) => {
      if (method === 'CreateVolume' && endFaults.length === 0)
        endFaults.push(faults.inject({ action: { kind: 'status', code: 503 }, times: Infinity }));
    });
    const worker = story.worker();
    // The API server stops answering while the driver works; the record keeps the answer.
    assert.equal((await worker.reconcileClaim(underWay)).kind, 'retry');
    assert.equal((await worker.reconcileClaim(waiting)).kind, 'later');
    assert.equal((await worker.reconcileClaim(underWay)).kind, 'later');
    assert.equal(story.creates(waiting).length, 0);
    endFaults[0]?.();
    await story.runUntilDone(underWay, worker);
    await story.runUntilDone(waiting, worker);
    await story.assertOneVolume(underWay);
    await story.assertOneVolume(waiting);
    assert.equal(story.creates(underWay).length, 1);
  });
});
