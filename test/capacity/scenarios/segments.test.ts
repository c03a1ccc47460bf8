import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { CapacityBed, type Stage } from './capacity-bed.ts';

const FOO = { layer0: 'foo' };

describe('when nodes change, storage capacity', () => {
  let bed: CapacityBed;
  let stage: Stage;
  before(async () => {
    bed = await CapacityBed.open();
  });
  beforeEach(async () => {
    stage = await bed.newStage();
    await stage.addClass('a');
  });
  afterEach(() => stage.close());
  after(() => bed.close());

  const nameOf = (node: string): { readonly name: string } => ({ name: `${stage.name}-${node}` });
  const addNode = (node: string, labels: Readonly<Record<string, string>>): Promise<unknown> =>
    bed.kube.create(nodes, undefined, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { ...nameOf(node), labels },
    });
  const driverEntry = (...topologyKeys: string[]) => ({
    spec: { drivers: [{ name: stage.manager.driver, nodeID: 'id', topologyKeys }] },
  });
  const addCsiNode = (node: string, spec: object = driverEntry('layer0')): Promise<unknown> =>
    bed.kube.create(csiNodes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: nameOf(node),
      ...spec,
    });
  const patch = (resource: typeof nodes, node: string, body: object): Promise<unknown> =>
    bed.kube.patch(resource, nameOf(node), { type: 'merge', body });

  const refuseList = (plural: string, code: number): (() => void) => {
    const action = { kind: 'status', code } as const;
    return bed.cluster.api.faults.inject({ action, verb: 'list', plural, times: Infinity });
  };
  const uids = async (): Promise<readonly string[]> =>
    (await stage.objects()).map(({ metadata }) => metadata.uid);

  /** Publishes one value, for the node "one". */
  async function startWithOne(): Promise<void> {
    await stage.addNode('one', FOO);
    await stage.start();
    await stage.untilSummary('a foo 1Gi');
  }

  for (const [title, resource] of [
    ['CSINode (N-14)', csiNodes],
    ['Node (N-15)', nodes],
  ] as const)
    it(`goes with the ${title}`, async () => {
      await startWithOne();
      await bed.kube.delete(resource, nameOf('one'));
      await stage.untilSummary();
    });

  it('goes when the driver is no longer registered (N-16)', async () => {
    await startWithOne();
    await patch(csiNodes, 'one', { spec: { drivers: [] } });
    await stage.untilSummary();
  });

  for (const [title, hasDriver, hasLabels, expected] of [
    ['comes with driver and labels (N-17)', true, true, ['a foo 1Gi']],
    ['does not come with labels alone (N-18)', false, true, []],
    ['does not come with the driver alone (N-19)', true, false, []],
  ] as const)
    it(title, async () => {
      await addNode('one', {});
      await addCsiNode('one', { spec: { drivers: [] } });
      await stage.start();
      if (hasDriver) await patch(csiNodes, 'one', driverEntry('layer0'));
      if (hasLabels) await patch(nodes, 'one', { metadata: { labels: FOO } });
      await stage.settle();
      await stage.untilSummary(...expected);
    });

  it('comes with the Node (N-20)', async () => {
    await addCsiNode('one');
    await stage.start();
    await addNode('one', FOO);
    await stage.untilSummary('a foo 1Gi');
  });

  it('comes with the CSINode (N-21)', async () => {
    await addNode('one', FOO);
    await stage.start();
    await addCsiNode('one');
    await stage.untilSummary('a foo 1Gi');
  });

  it('follows the value of a label (N-22)', async () => {
    await startWithOne();
    await patch(nodes, 'one', { metadata: { labels: { layer0: 'bar' } } });
    await stage.untilSummary('a bar 2Gi');
  });

  it('stays as it is until all nodes are listed (N-23)', async () => {
    await stage.addNode('one', FOO);
    await stage.addObject('of-before', { className: 'a', segment: FOO });
    const before = await uids();
    const lift = refuseList('csinodes', 503);
    let hasStarted = false;
    const starting = stage.start().then(() => (hasStarted = true));
    const lists = (): number => bed.cluster.api.requests.snapshot()['list csinodes'] ?? 0;
    const earlier = lists();
    await until(() => lists() >= earlier + 2, 'nodes are asked for again');
    assert.deepEqual([hasStarted, await uids()], [false, before]);
    lift();
    await starting;
    assert.deepEqual([await stage.summary(), await uids()], [['a foo 1Gi'], before]);
  });

  it('waits where listing is refused, and says which right lacks (R-31)', async () => {
    await stage.addNode('one', FOO);
    const lift = refuseList('csistoragecapacities', 403);
    const starting = stage.start();
    await until(() => /grant list and watch/.test(stage.trouble ?? ''), 'it says what to grant');
    lift();
    await starting;
    await stage.untilSummary('a foo 1Gi');
    assert.equal(stage.trouble, undefined);
  });
});
