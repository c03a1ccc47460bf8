import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { NodeDemand, type NodeDemandOptions } from '#src/ingest/dependencies/node-demand.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { csiNodes, nodes } from '#src/kube/resources.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { startNodeWatch } from '#src/topology/node-watch.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { until } from '../../harness/until.ts';

const DRIVER = 'a.example.com';
const NODES = 'nodes//*';
const CSI_NODES = 'csinodes//*';
const WANTED = new Set([NODES, CSI_NODES]);

describe('the watch of nodes that keys wait for', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let demand: NodeDemand;
  let nowMs = 1_000_000;
  let changed: string[] = [];
  let lines: string[] = [];
  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    await kube.create(nodes, undefined, {
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'one', labels: { zone: 'a' } },
    });
    await kube.create(csiNodes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'CSINode',
      metadata: { name: 'one' },
      spec: { drivers: [{ name: DRIVER, nodeID: 'one', topologyKeys: ['zone'] }] },
    });
  });
  beforeEach(() => {
    changed = [];
    lines = [];
    const options: NodeDemandOptions = {
      start: (onChange) =>
        startNodeWatch({ client: kube, driver: DRIVER, log: silentLog, onChange }),
      onChange: (object) => void changed.push(object),
      clock: { nowMs: () => nowMs, sleep: () => Promise.resolve() },
      log: createLogger({
        name: 'test',
        verbosity: 9,
        format: 'text',
        write: (line) => void lines.push(line),
      }),
      lingerMs: 1000,
    };
    demand = new NodeDemand(options);
  });
  afterEach(() => demand.stop());
  after(() => cluster.close());

  const synced = (): Promise<void> =>
    until(() => demand.versionOf(NODES) !== undefined, 'the nodes are listed');
  const setZone = (zone: string) =>
    kube.patch(nodes, { name: 'one' }, { type: 'merge', body: { metadata: { labels: { zone } } } });

  it('sends no request while no key waits for nodes', () => {
    const before = cluster.api.requests.snapshot();
    demand.follow(new Set(['storageclasses//fast', 'nodes//one']));
    assert.equal(demand.versionOf(NODES), undefined);
    assert.deepEqual(cluster.api.requests.snapshot(), before);
  });

  it('has a version of all nodes, one of all CSINodes, and of nothing else', async () => {
    demand.follow(WANTED);
    await synced();
    assert.match(demand.versionOf(NODES) ?? '', /^[0-9a-f]{16}$/);
    assert.match(demand.versionOf(CSI_NODES) ?? '', /^[0-9a-f]{16}$/);
    for (const id of ['nodes//one', 'storageclasses//*', 'constructor'])
      assert.equal(demand.versionOf(id), undefined);
  });

  it('reports soon that nodes are listed, and that they have changed', async () => {
    demand.follow(WANTED);
    await until(() => changed.length > 0, 'the first list is reported');
    assert.deepEqual(changed.slice(0, 2), [NODES, CSI_NODES]);
    await synced();
    const version = demand.versionOf(NODES);
    changed = [];
    await setZone('b');
    const startMs = Date.now();
    await until(() => changed.includes(NODES), 'the change is reported');
    assert.ok(Date.now() - startMs < 2000);
    assert.notEqual(demand.versionOf(NODES), version);
    await setZone('a');
    await until(() => demand.versionOf(NODES) === version, 'the old labels are back');
  });

  it('reports a burst of changes once', async () => {
    demand.follow(WANTED);
    await until(() => changed.length > 0, 'the first list is reported');
    await synced();
    changed = [];
    for (const zone of ['b', 'c', 'd', 'e', 'a']) await setZone(zone);
    await until(() => changed.includes(NODES), 'the change is reported');
    assert.ok(changed.length <= 4, `${changed.length / 2} reports`);
  });

  it('lasts while a key waits for nodes, and for a while after that', async () => {
    demand.follow(WANTED);
    await synced();
    nowMs += 5000;
    demand.follow(new Set([CSI_NODES]));
    nowMs += 900;
    demand.follow(new Set());
    assert.notEqual(demand.versionOf(NODES), undefined);
    nowMs += 200;
    demand.follow(new Set());
    assert.equal(demand.versionOf(NODES), undefined);
    await until(() => cluster.api.watchCount('nodes') === 0, 'the watch ends');
  });

  it('says once why it fails', async () => {
    const fault = { action: { kind: 'status', code: 403 }, verb: 'list', plural: 'nodes' } as const;
    const cancel = cluster.api.faults.inject({ ...fault, times: Infinity });
    demand.follow(WANTED);
    await until(() => {
      demand.follow(WANTED);
      return lines.length > 0;
    }, 'a line of the log');
    demand.follow(WANTED);
    assert.equal(lines.length, 1, lines.join());
    assert.match(lines[0] ?? '', /keys wait for nodes, but the watch fails/);
    assert.match(lines[0] ?? '', /grant list and watch/);
    cancel();
  });
});
