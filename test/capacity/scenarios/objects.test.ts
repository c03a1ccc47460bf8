import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { CAPACITY_DRIVER, CAPACITY_MANAGED_BY } from '#src/kube/keys.ts';
import type { StorageCapacity } from '#src/kube/objects.ts';
import { storageCapacities } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { CapacityBed, DRIVER, GI, NAMESPACE, OWNER } from './capacity-bed.ts';

const FOO: Readonly<Record<string, string>> = { layer0: 'foo' };
const BAR = { layer0: 'bar' };
const OTHER = { ...OWNER, name: 'external-provisioner', uid: 'other-uid' };

/** What is there before ingest starts. */
interface Given {
  readonly segments?: readonly Readonly<Record<string, string>>[];
  readonly classes?: Readonly<Record<string, Parameters<CapacityBed['addClass']>[1]>>;
  readonly objects?: readonly Parameters<CapacityBed['addObject']>[1][];
}
type Case = Given & { readonly counts: string; readonly expected: readonly string[] };

const LATE = {};
const TWO_SEGMENTS = {
  segments: [FOO, BAR],
  classes: { a: LATE, b: { parameters: { multiplier: '3' } } },
};
const ALL_FOUR = ['a foo 1Gi', 'b foo 3Gi', 'a bar 2Gi', 'b bar 6Gi'];
const A_IN_FOO = { segments: [FOO], classes: { a: LATE } };
const FOUND = { objects: [{ className: 'a', segment: FOO }] };

const CASES: Readonly<Record<string, Case>> = {
  'nothing without classes and segments (M-01)': { counts: '0/0/0', expected: [] },
  'nothing without classes (M-02)': { segments: [FOO], counts: '0/0/0', expected: [] },
  'nothing without segments (M-03)': { classes: { a: LATE }, counts: '0/0/0', expected: [] },
  'an object for a class and a segment (M-04)': {
    ...A_IN_FOO,
    counts: '1/0/0',
    expected: ['a foo 1Gi'],
  },
  'no object of a class that is gone (M-13)': {
    ...FOUND,
    segments: [FOO],
    counts: '0/0/1',
    expected: [],
  },
  'no object of a segment that is gone (M-14)': {
    ...FOUND,
    classes: { a: LATE },
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
  beforeEach(async () => void (bed = await CapacityBed.open()));
  afterEach(() => bed.close());

  async function prepare({ segments = [], classes = {}, objects = [] }: Given) {
    for (const [i, segment] of segments.entries()) await bed.addNode(`node-${i}`, segment);
    for (const [name, o] of Object.entries(classes)) await bed.addClass(name, o);
    const made: StorageCapacity[] = [];
    for (const [i, object] of objects.entries())
      made.push(await bed.addObject(`existing-${i}`, object));
    return made;
  }

  const only = async (): Promise<StorageCapacity> => {
    const [object, ...others] = await bed.objects();
    assert.ok(object !== undefined && others.length === 0, await bed.summary());
    return object;
  };

  for (const [title, { counts, expected, ...given }] of Object.entries(CASES))
    it(title, async () => {
      await prepare(given);
      assert.equal(await bed.startCounted(), counts);
      await bed.untilSummary(...expected);
      assert.equal(await bed.counts(), `${expected.length}/${expected.length}/0`);
    });

  it('no owner, if there is none (M-05)', async () => {
    await prepare(A_IN_FOO);
    await bed.start({ owner: undefined });
    assert.equal((await only()).metadata.ownerReferences, undefined);
  });

  it('the maximum size of a volume, if the driver reports it (M-06)', async () => {
    await prepare(A_IN_FOO);
    bed.answer = () => ({ availableCapacity: GI, maximumVolumeSize: 1n << 20n });
    await bed.start();
    assert.equal((await only()).maximumVolumeSize, '1Mi');
  });

  for (const [title, found, owner, owners] of [
    ['an equal value without a write (M-09)', { owner: OWNER }, OWNER, undefined],
    ['a changed value in its object (M-10)', { owner: OWNER, capacity: '9Gi' }, OWNER, [OWNER]],
    ['the owner in an object that has none (M-11)', {}, OWNER, [OWNER]],
    ['no other owner, if there is none (M-12)', { owner: OWNER }, undefined, undefined],
    ['the value beside another owner', { owner: OTHER, capacity: '9Gi' }, OWNER, [OTHER]],
  ] as const)
    it(title, async () => {
      const objects = [{ className: 'a', segment: FOO, ...found }];
      const [before] = await prepare({ ...A_IN_FOO, objects });
      await bed.start({ owner });
      const { capacity, metadata } = await only();
      assert.deepEqual([capacity, metadata.uid], ['1Gi', before?.metadata.uid]);
      if (owners === undefined) assert.deepEqual(metadata, before?.metadata);
      else assert.deepEqual(metadata.ownerReferences, owners);
    });

  for (const [title, more] of [
    ['with another managed-by label (M-15)', { [CAPACITY_MANAGED_BY]: 'someone-else' }],
    ['without a managed-by label (M-16)', {}],
  ] as const)
    it(`no change of an object ${title}`, async () => {
      const labels = { [CAPACITY_DRIVER]: DRIVER, ...more };
      const [before] = await prepare({ objects: [{ className: 'a', segment: FOO, labels }] });
      await bed.start();
      assert.equal(await bed.counts(), '0/0/0');
      assert.deepEqual((await only()).metadata, before?.metadata);
    });

  it('values in their objects of before and new ones, and deletes others (M-18, M-19)', async () => {
    const objects = ['a', 'gone'].flatMap((className) =>
      [FOO, BAR].map((segment) => ({ className, segment, capacity: '9Gi' })),
    );
    const made = await prepare({ ...TWO_SEGMENTS, objects });
    assert.equal(await bed.startCounted(), '4/2/2');
    await bed.untilSummary(...ALL_FOUR);
    await bed.settle();
    assert.equal(await bed.counts(), '4/4/0');
    const uids = new Set((await bed.objects()).map(({ metadata }) => metadata.uid));
    assert.deepEqual(
      made.map(({ metadata }) => uids.has(metadata.uid)),
      [true, true, false, false],
    );
  });

  it('a value again whose object was deleted (M-20)', async () => {
    await prepare(A_IN_FOO);
    await bed.start();
    const { metadata } = await only();
    await bed.kube.delete(storageCapacities, metadata);
    await until(async () => {
      const [object] = await bed.objects();
      return object !== undefined && object.metadata.uid !== metadata.uid;
    }, 'there is a new object');
  });

  it('no value twice: deletes an object that somebody else added (M-21)', async () => {
    await prepare(A_IN_FOO);
    await bed.start();
    const first = await only();
    await bed.addObject('another', { className: 'a', segment: FOO });
    await bed.untilSummary('a foo 1Gi');
    assert.equal((await only()).metadata.uid, first.metadata.uid);
  });

  it('a value again whose object lost our labels, and leaves that one alone (M-22)', async () => {
    await prepare(A_IN_FOO);
    await bed.start();
    const { metadata } = await only();
    const body = { metadata: { labels: null } };
    await bed.kube.patch(storageCapacities, metadata, { type: 'merge', body });
    await bed.untilSummary('a foo 1Gi', 'a foo 1Gi');
    await bed.settle();
    const unlabelled = (await bed.objects()).filter((each) => each.metadata.labels === undefined);
    assert.deepEqual(
      unlabelled.map((each) => each.metadata.uid),
      [metadata.uid],
    );
  });

  it('the right value in an object that was deleted and created again (M-23)', async () => {
    await prepare(A_IN_FOO);
    await bed.start();
    const { name } = (await only()).metadata;
    await bed.kube.delete(storageCapacities, { namespace: NAMESPACE, name });
    // A worker may be faster.
    const again = bed.addObject(name, { className: 'a', segment: FOO, capacity: '7Gi' });
    await again.catch(() => undefined);
    await bed.untilSummary('a foo 1Gi');
    await bed.settle();
    assert.equal(await bed.counts(), '1/1/0');
  });

  it('what the driver reports at the next poll (M-24)', async () => {
    await prepare(A_IN_FOO);
    await bed.start({ pollMs: 200 });
    const { uid } = (await only()).metadata;
    bed.answer = () => ({ availableCapacity: 2n * GI });
    await bed.untilSummary('a foo 2Gi');
    assert.equal((await only()).metadata.uid, uid);
  });

  for (const [title, includesImmediate, more] of [
    ['for late binding alone (M-07, M-25)', false, []],
    ['for immediate binding too, if asked for (M-08, M-26)', true, ['now foo 1Gi', 'now bar 2Gi']],
  ] as const)
    it(`segments, also one that appears, ${title}`, async () => {
      await prepare({ segments: [FOO], classes: { late: LATE, now: { mode: 'Immediate' } } });
      await bed.start({ includesImmediate });
      await bed.untilSummary('late foo 1Gi', ...more.slice(0, 1));
      await bed.addNode('late', BAR);
      await bed.untilSummary('late foo 1Gi', 'late bar 2Gi', ...more);
    });

  it('one object for the whole cluster if the driver has no keys, and keeps it', async () => {
    await bed.addNode('one', FOO, []);
    await bed.addNode('two', BAR, []);
    await bed.addClass('a');
    await bed.start({ pollMs: 200 });
    const object = await only();
    assert.deepEqual(object.nodeTopology, {});
    const before = bed.calls.length;
    await until(() => bed.calls.length >= before + 3, 'it was polled again');
    assert.deepEqual(await only(), object);
  });

  it('a capacity of 0 and the largest of CSI, and asks with all parameters and no capabilities (R-29, R-30)', async () => {
    const parameters = { 'csi.storage.k8s.io/fstype': 'xfs', pool: 'fast' };
    await prepare({ segments: [FOO], classes: { a: { parameters }, b: LATE } });
    bed.answer = (request) => ({
      availableCapacity: request.parameters?.['pool'] === undefined ? 2n ** 63n - 1n : 0n,
    });
    await bed.start();
    await bed.untilSummary('a foo 0', 'b foo 9223372036854775807');
    const call = bed.calls.find((each) => each.parameters?.['pool'] !== undefined);
    assert.deepEqual(call, { parameters, accessibleTopology: { segments: FOO } });
  });
});
