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

  /** Publishes one value, for the node "one". */
  async function startWithOne(): Promise<void> {
    await stage.addNode('one', FOO);
    await stage.start();
    await stage.untilSummary('a foo 1Gi');
  }

  it('goes with the CSINode (N-14)', async () => {
    await startWithOne();
    await bed.kube.delete(csiNodes, nameOf('one'));
    await stage.untilSummary();
  });

  it('goes with the Node (N-15)', async () => {
    await startWithOne();
    await bed.kube.delete(nodes, nameOf('one'));
    await stage.untilSummary();
  });

  it('goes when the driver is no longer registered (N-16)', async () => {
    await startWithOne();
    await patch(csiNodes, 'one', { spec: { drivers: [] } });
    await stage.untilSummary();
  });

  it('comes with driver and labels (N-17)', async () => {
    await addNode('one', {});
    await addCsiNode('one', { spec: { drivers: [] } });
    await stage.start();
    await patch(csiNodes, 'one', driverEntry('layer0'));
    await patch(nodes, 'one', { metadata: { labels: FOO } });
    await stage.untilSummary('a foo 1Gi');
  });

  it('does not come with labels alone (N-18)', async () => {
    await addNode('one', {});
    await addCsiNode('one', { spec: { drivers: [] } });
    await stage.start();
    await patch(nodes, 'one', { metadata: { labels: FOO } });
    await stage.settle();
    assert.deepEqual(await stage.summary(), []);
  });

  it('does not come with the driver alone (N-19)', async () => {
    await addNode('one', {});
    await addCsiNode('one', { spec: { drivers: [] } });
    await stage.start();
    await patch(csiNodes, 'one', driverEntry('layer0'));
    await stage.settle();
    assert.deepEqual(await stage.summary(), []);
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
    const action = { kind: 'status', code: 503, message: 'not yet' } as const;
    const lift = bed.cluster.api.faults.inject({
      action,
      verb: 'list',
      plural: 'csinodes',
      times: Infinity,
    });
    let hasStarted = false;
    const starting = stage.start().then(() => (hasStarted = true));
    const [before] = await stage.objects();
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(hasStarted, false);
    assert.equal((await stage.objects())[0]?.metadata.uid, before?.metadata.uid);
    lift();
    await starting;
    await stage.untilSummary('a foo 1Gi');
    assert.equal((await stage.objects())[0]?.metadata.uid, before?.metadata.uid);
  });

  it('waits where listing is refused, and says which right lacks (R-31)', async () => {
    await stage.addNode('one', FOO);
    const lift = bed.cluster.api.faults.inject({
      action: { kind: 'status', code: 403, message: 'refused' },
      verb: 'list',
      plural: 'csistoragecapacities',
      times: Infinity,
    });
    const starting = stage.start();
    await until(() => /grant list and watch/.test(stage.trouble ?? ''), 'it says what to grant');
    lift();
    await starting;
    await stage.untilSummary('a foo 1Gi');
    assert.equal(stage.trouble, undefined);
  });
});
