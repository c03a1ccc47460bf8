import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { CapacityBed, DRIVER } from './capacity-bed.ts';

const FOO = { layer0: 'foo' };

describe('when nodes change, storage capacity', () => {
  let bed: CapacityBed;
  beforeEach(async () => {
    bed = await CapacityBed.open();
    await bed.addClass('a');
  });
  afterEach(() => bed.close());

  const patch = (resource: typeof nodes, body: object): Promise<unknown> =>
    bed.kube.patch(resource, { name: 'one' }, { type: 'merge', body });
  const label = (layer0: string) => patch(nodes, { metadata: { labels: { layer0 } } });
  const register = () =>
    patch(csiNodes, {
      spec: { drivers: [{ name: DRIVER, nodeID: 'id', topologyKeys: ['layer0'] }] },
    });
  const addNode = (labels: Readonly<Record<string, string>> = FOO): Promise<unknown> =>
    bed.kube.create(nodes, undefined, { metadata: { name: 'one', labels } });
  const addCsiNode = () => bed.addCsiNode('one', ['layer0']);

  const refuseList = (plural: string, code: number): (() => void) => {
    const action = { kind: 'status', code } as const;
    return bed.cluster.api.faults.inject({ action, verb: 'list', plural, times: Infinity });
  };
  const uids = async (): Promise<readonly string[]> =>
    (await bed.objects()).map(({ metadata }) => metadata.uid);

  for (const [title, end, expected] of [
    ['goes with the CSINode (M-27, N-14)', () => bed.kube.delete(csiNodes, { name: 'one' }), []],
    ['goes with the Node (M-27, N-15)', () => bed.kube.delete(nodes, { name: 'one' }), []],
    ['goes with the registration (N-16)', () => patch(csiNodes, { spec: { drivers: [] } }), []],
    ['follows the value of a label (M-28, N-22)', () => label('bar'), ['a bar 2Gi']],
  ] as const)
    it(title, async () => {
      await bed.addNode('one', FOO);
      await bed.start();
      await bed.untilSummary('a foo 1Gi');
      await end();
      await bed.untilSummary(...expected);
      await bed.settle();
      assert.equal(await bed.counts(), `${expected.length}/${expected.length}/0`);
    });

  const bare = async (): Promise<void> => {
    await addNode({});
    await bed.addCsiNode('one', undefined);
  };
  for (const [title, before, first, last] of [
    ['labels and driver, not with labels alone (N-17, N-18)', bare, () => label('foo'), register],
    ['driver and labels, not with the driver alone (N-19)', bare, register, () => label('foo')],
    ['the Node (N-20)', async () => {}, addCsiNode, addNode],
    ['the CSINode (N-21)', async () => {}, addNode, addCsiNode],
  ] as const)
    it(`comes with ${title}`, async () => {
      await before();
      await bed.start();
      await first();
      await bed.settle();
      assert.equal(await bed.summary(), '');
      await last();
      await bed.untilSummary('a foo 1Gi');
    });

  it('stays as it is until all nodes are listed (N-23)', async () => {
    await bed.addNode('one', FOO);
    await bed.addObject('of-before', { className: 'a', segment: FOO });
    const before = await uids();
    const lift = refuseList('csinodes', 503);
    let hasStarted = false;
    const starting = bed.start().then(() => (hasStarted = true));
    const lists = (): number => bed.cluster.api.requests.snapshot()['list csinodes'] ?? 0;
    const earlier = lists();
    await until(() => lists() >= earlier + 2, 'nodes are asked for again');
    assert.deepEqual([hasStarted, await uids()], [false, before]);
    lift();
    await starting;
    assert.deepEqual([await bed.summary(), await uids()], ['a foo 1Gi', before]);
  });

  it('waits where listing is refused, and says which right lacks (R-31)', async () => {
    await bed.addNode('one', FOO);
    const lift = refuseList('csistoragecapacities', 403);
    const starting = bed.start();
    await until(() => /grant list and watch/.test(bed.trouble ?? ''), 'it says what to grant');
    lift();
    await starting;
    await bed.untilSummary('a foo 1Gi');
    assert.equal(bed.trouble, undefined);
  });
});
