import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { CAPACITY_DRIVER, CAPACITY_MANAGED_BY } from '#src/kube/keys.ts';
import type { StorageCapacity } from '#src/kube/objects.ts';
import { storageCapacities } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { CapacityBed, GI, OWNER, type Stage } from './capacity-bed.ts';

const FOO: Readonly<Record<string, string>> = { layer0: 'foo' };
const BAR = { layer0: 'bar' };

/** What is there before ingest and jobs start. */
interface Given {
  readonly segments?: readonly Readonly<Record<string, string>>[];
  readonly classes?: Readonly<Record<string, Parameters<Stage['addClass']>[1]>>;
  readonly objects?: readonly Parameters<Stage['addObject']>[1][];
  readonly start?: Parameters<Stage['start']>[0];
  /** Goal, current and obsolete before any job has run. */
  readonly counts: string;
  readonly expected: readonly string[];
}

const LATE = {};
const TWO_SEGMENTS = {
  segments: [FOO, BAR],
  classes: { a: LATE, b: { parameters: { multiplier: '3' } } },
};
const ALL_FOUR = ['a foo 1Gi', 'b foo 3Gi', 'a bar 2Gi', 'b bar 6Gi'];

const GIVEN: Readonly<Record<string, Given>> = {
  'nothing without classes and segments (M-01)': { counts: '0/0/0', expected: [] },
  'nothing without classes (M-02)': { segments: [FOO], counts: '0/0/0', expected: [] },
  'nothing without segments (M-03)': { classes: { a: LATE }, counts: '0/0/0', expected: [] },
  'an object for a class and a segment (M-04)': {
    segments: [FOO],
    classes: { a: LATE },
    counts: '1/0/0',
    expected: ['a foo 1Gi'],
  },
  'nothing for a class with immediate binding (M-07)': {
    segments: [FOO],
    classes: { a: { mode: 'Immediate' } },
    counts: '0/0/0',
    expected: [],
  },
  'an object for a class with immediate binding, if asked for (M-08)': {
    segments: [FOO],
    classes: { a: { mode: 'Immediate' } },
    start: { includesImmediate: true },
    counts: '1/0/0',
    expected: ['a foo 1Gi'],
  },
  'no object of a class that is gone (M-13)': {
    segments: [FOO],
    objects: [{ className: 'a', segment: FOO }],
    counts: '0/0/1',
    expected: [],
  },
  'no object of a segment that is gone (M-14)': {
    classes: { a: LATE },
    objects: [{ className: 'a', segment: FOO }],
    counts: '0/0/1',
    expected: [],
  },
  'an object for each class and segment (M-17)': {
    ...TWO_SEGMENTS,
    counts: '4/0/0',
    expected: ALL_FOUR,
  },
};

describe('storage capacity publishes', () => {
  let bed: CapacityBed;
  let stage: Stage;
  before(async () => {
    bed = await CapacityBed.open();
  });
  beforeEach(async () => {
    bed.answer = undefined;
    stage = await bed.newStage();
  });
  afterEach(() => stage.close());
  after(() => bed.close());

  async function prepare({ segments = [], classes = {}, objects = [] }: Partial<Given>) {
    for (const [i, segment] of segments.entries()) await stage.addNode(`node-${i}`, segment);
    for (const [name, o] of Object.entries(classes)) await stage.addClass(name, o);
    const made: StorageCapacity[] = [];
    for (const [i, object] of objects.entries())
      made.push(await stage.addObject(`existing-${i}`, object));
    return made;
  }

  const only = async (): Promise<StorageCapacity> => {
    const [object, ...others] = await stage.objects();
    assert.ok(object !== undefined && others.length === 0, (await stage.summary()).join(', '));
    return object;
  };

  for (const [title, given] of Object.entries(GIVEN))
    it(title, async () => {
      await prepare(given);
      await stage.start({ ...given.start, isIdle: true });
      assert.equal(await stage.counts(), given.counts);
      await stage.close();
      await stage.start(given.start);
      await stage.untilSummary(...given.expected);
      const count = given.expected.length;
      assert.equal(await stage.counts(), `${count}/${count}/0`);
    });

  const A_IN_FOO = { segments: [FOO], classes: { a: LATE } };
  const A_IN_BAR = { segments: [BAR], classes: { a: LATE } };
  const existing = (segment = FOO, owner = OWNER) => ({
    objects: [{ className: 'a', segment, owner }],
  });

  it('the owner, if there is one (M-04)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    assert.deepEqual((await only()).metadata.ownerReferences, [OWNER]);
  });

  it('no owner, if there is none (M-05)', async () => {
    await prepare(A_IN_FOO);
    await stage.start({ owner: undefined });
    assert.equal((await only()).metadata.ownerReferences, undefined);
  });

  it('the maximum size of a volume, if the driver reports it (M-06)', async () => {
    await prepare(A_IN_FOO);
    bed.answer = () => ({ availableCapacity: GI, maximumVolumeSize: 1n << 20n });
    await stage.start();
    assert.equal((await only()).maximumVolumeSize, '1Mi');
  });

  it('a value that is equal without a write (M-09)', async () => {
    const [before] = await prepare({ ...A_IN_FOO, ...existing() });
    await stage.start();
    assert.deepEqual((await only()).metadata, before?.metadata);
  });

  it('a value that has changed in the same object (M-10)', async () => {
    const [before] = await prepare({ ...A_IN_BAR, ...existing(BAR) });
    await stage.start();
    const { capacity, metadata } = await only();
    assert.deepEqual([capacity, metadata.uid], ['2Gi', before?.metadata.uid]);
  });

  it('the owner in an object that has none (M-11)', async () => {
    const objects = [{ className: 'a', segment: FOO }];
    const [before] = await prepare({ ...A_IN_FOO, objects });
    await stage.start();
    const { metadata } = await only();
    assert.deepEqual([metadata.ownerReferences, metadata.uid], [[OWNER], before?.metadata.uid]);
  });

  it('no change of an object with an owner, if there is none (M-12)', async () => {
    const [before] = await prepare({ ...A_IN_FOO, ...existing() });
    await stage.start({ owner: undefined });
    assert.deepEqual((await only()).metadata, before?.metadata);
  });

  it('the value in an object that another one owns, which keeps its owner', async () => {
    const other = { ...OWNER, name: 'external-provisioner', uid: 'other-uid' };
    await prepare({ ...A_IN_BAR, ...existing(BAR, other) });
    await stage.start();
    const { capacity, metadata } = await only();
    assert.deepEqual([capacity, metadata.ownerReferences], ['2Gi', [other]]);
  });

  for (const [title, more] of [
    ['with another managed-by label (M-15)', { [CAPACITY_MANAGED_BY]: 'someone-else' }],
    ['without a managed-by label (M-16)', {}],
  ] as const)
    it(`no change of an object ${title}`, async () => {
      const labels = { [CAPACITY_DRIVER]: stage.manager.driver, ...more };
      const [before] = await prepare({ objects: [{ className: 'a', segment: FOO, labels }] });
      await stage.start();
      assert.equal(await stage.counts(), '0/0/0');
      assert.deepEqual((await only()).metadata, before?.metadata);
    });

  it('four values that have changed in their objects (M-18)', async () => {
    const objects = ['a', 'b'].flatMap((className) =>
      [FOO, BAR].map((segment) => ({ className, segment, owner: OWNER, capacity: '9Gi' })),
    );
    const made = await prepare({ ...TWO_SEGMENTS, objects });
    await stage.start({ isIdle: true });
    assert.equal(await stage.counts(), '4/4/0');
    await stage.close();
    await stage.start();
    await stage.untilSummary(...ALL_FOUR);
    const uids = (all: readonly StorageCapacity[]) => all.map(({ metadata }) => metadata.uid);
    assert.deepEqual(uids(await stage.objects()).toSorted(), uids(made).toSorted());
  });

  it('two values in objects of before and two new ones, and deletes two (M-19)', async () => {
    const objects = ['a', 'gone'].flatMap((className) =>
      [FOO, BAR].map((segment) => ({ className, segment, capacity: '9Gi' })),
    );
    await prepare({ ...TWO_SEGMENTS, objects });
    await stage.start({ isIdle: true });
    assert.equal(await stage.counts(), '4/2/2');
    await stage.close();
    await stage.start();
    await stage.untilSummary(...ALL_FOUR);
    await stage.settle();
    assert.equal(await stage.counts(), '4/4/0');
  });

  it('a value again whose object was deleted (M-20)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    const { metadata } = await only();
    await bed.kube.delete(storageCapacities, metadata);
    await until(async () => {
      const [object] = await stage.objects();
      return object !== undefined && object.metadata.uid !== metadata.uid;
    }, 'there is a new object');
  });

  it('no value twice: deletes an object that somebody else added (M-21)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    const first = await only();
    await stage.addObject('another', { className: 'a', segment: FOO });
    await stage.untilSummary('a foo 1Gi');
    assert.equal((await only()).metadata.uid, first.metadata.uid);
  });

  it('a value again whose object lost our labels, and leaves that one alone (M-22)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    const { metadata } = await only();
    const body = { metadata: { labels: null } };
    await bed.kube.patch(storageCapacities, metadata, { type: 'merge', body });
    await stage.untilSummary('a foo 1Gi', 'a foo 1Gi');
    await stage.settle();
    const objects = await stage.objects();
    const isLabelled = objects.map(({ metadata: { labels } }) => labels !== undefined);
    assert.deepEqual(isLabelled.toSorted(), [false, true]);
    assert.ok(objects.some(({ metadata: { uid } }) => uid === metadata.uid));
  });

  it('the right value in an object that was deleted and created again (M-23)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    const { name } = (await only()).metadata;
    await bed.kube.delete(storageCapacities, { namespace: stage.name, name });
    // A worker may be faster.
    const again = stage.addObject(name, { className: 'a', segment: FOO, capacity: '7Gi' });
    await again.catch(() => undefined);
    await stage.untilSummary('a foo 1Gi');
    await stage.settle();
    assert.equal(await stage.counts(), '1/1/0');
  });

  it('what the driver reports at the next poll (M-24)', async () => {
    await prepare(A_IN_FOO);
    await stage.start({ pollMs: 200 });
    const { uid } = (await only()).metadata;
    bed.answer = () => ({ availableCapacity: 2n * GI });
    await stage.untilSummary('a foo 2Gi');
    assert.equal((await only()).metadata.uid, uid);
  });

  for (const [title, includesImmediate, expected] of [
    ['for late binding alone (M-25)', false, ['late foo 1Gi']],
    ['for immediate binding too, if asked for (M-26)', true, ['late foo 1Gi', 'now foo 1Gi']],
  ] as const)
    it(`a segment that appears, ${title}`, async () => {
      await prepare({ classes: { late: LATE, now: { mode: 'Immediate' } } });
      await stage.start({ includesImmediate });
      await stage.addNode('late', FOO);
      await stage.untilSummary(...expected);
    });

  it('nothing of a segment that disappears (M-27)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    await stage.untilSummary('a foo 1Gi');
    await stage.removeNode('node-0');
    await stage.untilSummary();
    await stage.settle();
    assert.equal(await stage.counts(), '0/0/0');
  });

  it('a new segment instead of an old one (M-28)', async () => {
    await prepare(A_IN_FOO);
    await stage.start();
    await stage.addNode('another', BAR);
    await stage.removeNode('node-0');
    await stage.untilSummary('a bar 2Gi');
  });

  it('one object for the whole cluster if the driver has no keys, and keeps it', async () => {
    await stage.addNode('one', FOO, []);
    await stage.addNode('two', BAR, []);
    await stage.addClass('a');
    await stage.start({ pollMs: 200 });
    const object = await only();
    assert.deepEqual(object.nodeTopology, {});
    const before = stage.calls().length;
    await until(() => stage.calls().length >= before + 3, 'it was polled again');
    assert.deepEqual(await only(), object);
  });

  it('an object for a capacity of 0, and asks with all parameters and no capabilities (R-29, R-30)', async () => {
    const parameters = { 'csi.storage.k8s.io/fstype': 'xfs', pool: 'fast' };
    await prepare({ segments: [FOO], classes: { a: { parameters } } });
    bed.answer = () => ({ availableCapacity: 0n });
    const before = stage.calls().length;
    await stage.start();
    await stage.untilSummary('a foo 0');
    const [call] = stage.calls().slice(before);
    assert.deepEqual(call?.parameters, parameters);
    assert.deepEqual(call.volumeCapabilities, []);
    assert.deepEqual(call.accessibleTopology?.segments, FOO);
  });
});
