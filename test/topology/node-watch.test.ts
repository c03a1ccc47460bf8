import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import type { KubeClient } from '#src/kube/client.ts';
import type { CsiNode, KubeObject } from '#src/kube/objects.ts';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { fingerprintNodes } from '#src/topology/fingerprint.ts';
import { NodeWatch } from '#src/topology/node-watch.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const DRIVER = 'a.example.com';

describe('the watch of nodes', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let watch: NodeWatch;
  let changes = 0;
  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  afterEach(async () => {
    await watch.stop();
    for (const resource of [nodes, csiNodes])
      for (const { metadata } of (await kube.list<KubeObject>(resource)).items)
        await kube.delete(resource, { name: metadata.name });
  });
  after(() => cluster.close());

  async function start(client: KubeClient = kube, ownNode?: string): Promise<void> {
    const onChange = () => void (changes += 1);
    watch = new NodeWatch({ client, driver: DRIVER, ownNode, log: silentLog, onChange });
    await watch.waitForSync();
  }
  const addNode = (name: string, labels?: Record<string, string>) =>
    kube.create(nodes, undefined, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name, ...(labels === undefined ? {} : { labels }) },
    });
  const setLabels = (name: string, labels: object) =>
    kube.patch(nodes, { name }, { type: 'merge', body: { metadata: { labels } } });
  const drivers = (topologyKeys?: readonly string[], driver = DRIVER) => [
    { name: 'b.example.com', nodeID: 'b', topologyKeys: ['other'] },
    { name: driver, nodeID: 'a', ...(topologyKeys === undefined ? {} : { topologyKeys }) },
  ];
  const addCsiNode = (name: string, of: object) =>
    kube.create(csiNodes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: { name },
      spec: { drivers: of },
    });
  const setDrivers = (name: string, of: object) =>
    kube.patch(csiNodes, { name }, { type: 'merge', body: { spec: { drivers: of } } });
  const reported = async (what: string, act: Promise<unknown>): Promise<void> => {
    const before = changes;
    await act;
    await until(() => changes > before, what);
  };

  it('has the labels of nodes, and the keys that this driver has registered', async () => {
    await addNode('one', { zone: 'a' });
    await addNode('bare');
    await addCsiNode('one', drivers(['zone', 'rack']));
    await addCsiNode('keyless', drivers());
    await addCsiNode('foreign', drivers(['zone'], 'c.example.com'));
    await start();
    assert.deepEqual(watch.node('one')?.labels, { zone: 'a' });
    assert.deepEqual(watch.node('bare')?.labels, {});
    assert.equal(watch.node('none'), undefined);
    assert.deepEqual(watch.csiNode('one')?.topologyKeys, ['zone', 'rack']);
    assert.deepEqual(watch.csiNode('keyless')?.topologyKeys, []);
    assert.deepEqual(watch.csiNode('foreign'), {
      ...watch.csiNode('foreign'),
      topologyKeys: undefined,
    });
    assert.equal(watch.csiNode('none'), undefined);
    assert.deepEqual(
      [...watch.nodes()].map(({ name }) => name),
      ['bare', 'one'],
    );
    assert.equal([...watch.csiNodes()].length, 3);
    await until(() => watch.trouble === undefined, 'the watches are open');
  });

  it('has one node alone where it is told so', async () => {
    for (const name of ['one', 'two']) {
      await addNode(name);
      await addCsiNode(name, drivers());
    }
    await start(kube, 'two');
    const found = [...watch.nodes(), ...watch.csiNodes()].map(({ name }) => name);
    assert.deepEqual(found, ['two', 'two']);
  });

  it('has the CSINode of a node whose last driver has gone: its list is null', async () => {
    await addCsiNode('one', drivers(['zone']));
    // As an API server writes an empty list, which the sandbox leaves out.
    const emptied = (raw: unknown): unknown => ({ ...(raw as CsiNode), spec: { drivers: null } });
    let isEmpty = false;
    await start({
      ...kube,
      watch: (resource, o) =>
        kube.watch(resource, {
          ...o,
          onEvent: (event) =>
            o.onEvent(isEmpty ? { ...event, object: emptied(event.object) } : event),
        }),
    });
    assert.deepEqual(watch.csiNode('one')?.topologyKeys, ['zone']);
    await until(() => watch.trouble === undefined, 'the watches are open');
    isEmpty = true;
    await setDrivers('one', []);
    await until(() => watch.csiNode('one')?.topologyKeys === undefined, 'the keys are forgotten');
    assert.equal(watch.csiNode('one')?.name, 'one');
  });

  it('asks for the metadata of nodes alone', async () => {
    const asked: (boolean | undefined)[] = [];
    await start({
      ...kube,
      list: (resource, o) => (asked.push(o?.metadataOnly), kube.list(resource, o)),
      watch: (resource, o) => (asked.push(o.metadataOnly), kube.watch(resource, o)),
    });
    await until(() => asked.length === 4, 'both are listed and watched');
    assert.equal(asked.filter(Boolean).length, 2, 'the list and the watch of nodes');
  });

  it('reports what comes, goes and changes', async () => {
    await start();
    await reported('a node', addNode('one', { zone: 'a' }));
    await reported('its labels', setLabels('one', { zone: 'b' }));
    assert.deepEqual(watch.node('one')?.labels, { zone: 'b' });
    await reported('its end', kube.delete(nodes, { name: 'one' }));
    await reported('a CSINode', addCsiNode('one', drivers()));
    await reported('a driver has gone', setDrivers('one', []));
    await reported('its keys', setDrivers('one', drivers(['zone', 'rack'])));
    assert.deepEqual(watch.csiNode('one')?.topologyKeys, ['zone', 'rack']);
    await reported('its end', kube.delete(csiNodes, { name: 'one' }));
  });

  it('does nothing for a heartbeat: no report, no new labels, nothing computed anew', async () => {
    await addNode('one', { zone: 'a', host: 'x' });
    await addCsiNode('one', drivers(['zone']));
    await start();
    const labels = watch.node('one')?.labels;
    const { computed } = watch;
    const before = changes;
    const heartbeat = {
      conditions: [{ type: 'Ready', status: 'True', reason: 'x', message: 'y' }],
    };
    const body = { status: heartbeat };
    await kube.patch(nodes, { name: 'one' }, { type: 'merge', subresource: 'status', body });
    const other = { name: 'c.example.com', nodeID: 'c', topologyKeys: ['rack'] };
    await setDrivers('one', [...drivers(['zone']), other]);
    for (const [resource, view] of [
      [nodes, () => watch.node('one')],
      [csiNodes, () => watch.csiNode('one')],
    ] as const) {
      const stored = await kube.get<KubeObject>(resource, { name: 'one' });
      const arrived = () => (view() as unknown as KubeObject).metadata.resourceVersion;
      await until(() => arrived() === stored?.metadata.resourceVersion, 'the update has arrived');
    }
    assert.equal(watch.computed, computed, 'what rules have computed is kept');
    assert.equal(changes, before);
    assert.equal(watch.node('one')?.labels, labels, 'the same object');
  });

  it('has another fingerprint once a registered key has another value', async () => {
    await addNode('one', { zone: 'a' });
    await addCsiNode('one', drivers(['zone']));
    await start();
    const seen = fingerprintNodes(watch);
    await reported('another value', setLabels('one', { zone: 'b' }));
    assert.notEqual(fingerprintNodes(watch), seen);
  });

  it('says what it lacks if it may not list nodes, and lists them once it may', async () => {
    const fault = { action: { kind: 'status', code: 403 }, verb: 'list', plural: 'nodes' } as const;
    const cancel = cluster.api.faults.inject({ ...fault, times: Infinity });
    const synced = start();
    await until(() => /403|grant/.test(watch.trouble ?? ''), 'it is in trouble');
    assert.match(watch.trouble ?? '', /^nodes: .*\(grant list and watch\)$/);
    assert.equal(watch.hasSynced, false);
    cancel();
    await synced;
    assert.equal(watch.hasSynced, true);
  });
});
