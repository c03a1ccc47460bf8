import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { classHint, segmentHint } from '#src/capacity/hints.ts';
import { toTerm } from '#src/topology/term.ts';
import { until } from '../../harness/until.ts';
import { CapacityBed, GI, type Stage } from './capacity-bed.ts';

const FOO = { layer0: 'foo' };
const BAR = { layer0: 'bar' };

describe('a refresh of storage capacity', () => {
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

  /** Two classes in these segments; forgets the calls of the start. */
  async function startWith(
    segments: readonly Readonly<Record<string, string>>[],
    o: Parameters<Stage['start']>[0] = {},
  ): Promise<void> {
    for (const [i, segment] of segments.entries()) await stage.addNode(`node-${i}`, segment);
    for (const name of ['a', 'b']) await stage.addClass(name, { parameters: { name } });
    await stage.start(o);
    forgetCalls();
  }

  let seen = 0;
  const forgetCalls = (): void => {
    seen = stage.calls().length;
  };
  /** "class segment" of each call since the start. */
  const asked = (): readonly string[] =>
    stage
      .calls()
      .slice(seen)
      .map(({ parameters, accessibleTopology }) =>
        [parameters['name'], ...Object.values(accessibleTopology?.segments ?? {})].join(' '),
      )
      .toSorted();

  it('asks once for a new value, also if the watch shows its object before the answer', async (t) => {
    await stage.addNode('node', FOO);
    await stage.addClass('a', { parameters: { name: 'a' } });
    const { create } = bed.kube;
    t.mock.method(bed.kube, 'create', async (...args: Parameters<typeof create>) => {
      const made = await create(...args);
      await stage.looked();
      return made;
    });
    await stage.start();
    assert.deepEqual(asked(), ['a foo']);
  });

  const DEEP = { layer0: 'foo', layer1: 'X', layer2: 'y' };

  for (const [title, segments, hint, expected] of [
    ['of a class asks in all segments (M-35)', [FOO, BAR], { class: 'a' }, ['a bar', 'a foo']],
    [
      'of a segment asks for all classes, and in no other segment (M-36)',
      [FOO, BAR],
      { segment: BAR },
      ['a bar', 'b bar'],
    ],
    [
      'of a segment with three keys asks in exactly that one (M-37)',
      [DEEP, { ...DEEP, layer2: 'z' }],
      { segment: DEEP },
      ['a foo X y', 'b foo X y'],
    ],
    ['of an unknown segment asks nothing (M-38)', [FOO], { segment: { layer0: 'else' } }, []],
    ['of an unknown class asks nothing (M-39)', [FOO], { class: 'else' }, []],
    ['of a part of a segment asks nothing (M-40)', [DEEP], { segment: FOO }, []],
  ] as const) {
    it(title, async () => {
      await startWith(segments);
      await stage.hint(
        'class' in hint
          ? classHint(stage.className(hint.class))
          : segmentHint(toTerm(hint.segment)),
      );
      await stage.settle();
      assert.deepEqual(asked(), expected);
    });
  }

  it('of a segment is written before the next poll', async () => {
    await startWith([FOO, BAR]);
    bed.answer = () => ({ availableCapacity: 5n * GI });
    await stage.hint(segmentHint(toTerm(BAR)));
    await stage.untilSummary('a foo 1Gi', 'b foo 1Gi', 'a bar 5Gi', 'b bar 5Gi');
  });

  it('that fails is repeated with a delay, and then written', async () => {
    await stage.addNode('node', FOO);
    await stage.addClass('a');
    let calls = 0;
    bed.answer = () => {
      calls += 1;
      return { availableCapacity: calls < 3 ? -1n : GI };
    };
    await stage.start();
    await stage.untilSummary('a foo 1Gi');
    assert.equal(calls, 3);
  });

  it('of the largest number that CSI can carry is published as it is', async () => {
    await stage.addNode('node', FOO);
    await stage.addClass('a');
    bed.answer = () => ({ availableCapacity: 2n ** 63n - 1n });
    await stage.start();
    await stage.untilSummary('a foo 9223372036854775807');
  });

  it('shows the age of the oldest value of each class', async () => {
    await startWith([FOO, BAR]);
    const ages = async () =>
      (await stage.metrics.getSingleMetric('sutler_capacity_oldest_age_seconds')?.get())?.values ??
      [];
    await until(async () => (await ages()).length === 2, 'each class has an age', 10_000);
    for (const { labels, value } of await ages()) {
      assert.match(String(labels['class']), /-[ab]$/);
      assert.ok(value >= 0 && value < 10, String(value));
    }
  });
});
