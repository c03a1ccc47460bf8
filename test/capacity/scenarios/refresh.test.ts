import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { classHint, segmentHint } from '#src/capacity/hints.ts';
import { toTerm } from '#src/topology/term.ts';
import { until } from '../../harness/until.ts';
import { CapacityBed, GI } from './capacity-bed.ts';

type Segment = Readonly<Record<string, string>>;
const FOO = { layer0: 'foo' };
const BAR = { layer0: 'bar' };
const DEEP = { layer0: 'foo', layer1: 'X', layer2: 'y' };

describe('a refresh of storage capacity', () => {
  let bed: CapacityBed;
  beforeEach(async () => void (bed = await CapacityBed.open()));
  afterEach(() => bed.close());

  /** Prepares two classes in these segments. */
  async function prepare(...segments: readonly Segment[]): Promise<void> {
    for (const [i, segment] of segments.entries()) await bed.addNode(`node-${i}`, segment);
    for (const name of ['a', 'b']) await bed.addClass(name, { parameters: { name } });
  }
  /** "class segment" of each call. */
  const asked = (): readonly string[] =>
    bed.calls
      .map(({ parameters, accessibleTopology }) =>
        [parameters?.['name'], ...Object.values(accessibleTopology?.segments ?? {})].join(' '),
      )
      .toSorted();

  it('asks once for a new value, also if the watch shows its object before the answer', async (t) => {
    await prepare(FOO);
    const { create } = bed.kube;
    t.mock.method(bed.kube, 'create', async (...args: Parameters<typeof create>) => {
      const made = await create(...args);
      await bed.looked();
      return made;
    });
    await bed.start();
    assert.deepEqual(asked(), ['a foo', 'b foo']);
  });

  const bySegment = (segment: Segment): string => segmentHint(toTerm(segment));
  const OTHER_DEEP = { ...DEEP, layer2: 'z' };
  const cases: readonly (readonly [string, readonly Segment[], string, readonly string[]])[] = [
    ['a class asks in all segments (M-35)', [FOO, BAR], classHint('a'), ['a bar', 'a foo']],
    [
      'a segment asks for all classes, and in no other segment (M-36)',
      [FOO, BAR],
      bySegment(BAR),
      ['a bar', 'b bar'],
    ],
    [
      'a segment with three keys asks in exactly that one (M-37)',
      [DEEP, OTHER_DEEP],
      bySegment(DEEP),
      ['a foo X y', 'b foo X y'],
    ],
    ['an unknown segment asks nothing (M-38)', [FOO], bySegment({ layer0: 'else' }), []],
    ['an unknown class asks nothing (M-39)', [FOO], classHint('else'), []],
    ['a part of a segment asks nothing (M-40)', [DEEP], bySegment(FOO), []],
  ];
  for (const [title, segments, hint, expected] of cases)
    it(`of ${title}`, async () => {
      await prepare(...segments);
      await bed.start();
      bed.calls.length = 0;
      bed.hints.add(hint);
      await bed.settle();
      assert.deepEqual(asked(), expected);
    });

  it('that fails is repeated with a delay, and then written', async () => {
    await bed.addNode('node', FOO);
    await bed.addClass('a');
    bed.answer = () => ({ availableCapacity: bed.calls.length < 3 ? -1n : GI });
    await bed.start();
    await bed.untilSummary('a foo 1Gi');
    assert.equal(bed.calls.length, 3);
  });

  it('shows the age of the oldest value of each class', async () => {
    await prepare(FOO, BAR);
    await bed.start();
    const metric = bed.metrics.getSingleMetric('sutler_capacity_oldest_age_seconds');
    const ages = async () => (await metric?.get())?.values ?? [];
    await until(async () => (await ages()).length === 2, 'each class has an age');
    for (const { labels, value } of await ages()) {
      assert.match(String(labels['class']), /^[ab]$/);
      assert.ok(value >= 0 && value < 600, String(value));
    }
  });
});
