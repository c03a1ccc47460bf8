import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import {
  shouldSweep,
  SnapshotSweep,
  type SnapshotSweepOptions,
} from '#src/ingest/snapshot-sweep.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Snapshot } from '#src/kube/objects.ts';
import { snapshots } from '#src/kube/resources.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { installCrds, removeCrds } from '../harness/snapshot-crds.ts';
import { until } from '../harness/until.ts';
import { aClaim } from '../volumes/builders.ts';

const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const FOREIGN = 'example.com/other';

describe('snapshot sweep', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let sweeps: SnapshotSweep[] = [];
  let ticks: NodeJS.Timeout[] = [];
  let enqueued: JobKey[] = [];
  let lists = 0;
  let serial = 0;
  /** Each test has its own namespace. */
  let namespace = '';

  const start = (o: Partial<SnapshotSweepOptions> = {}): SnapshotSweep => {
    const sweep = new SnapshotSweep({
      client: {
        list: async (...args) => {
          lists += 1;
          return kube.list(...args);
        },
      },
      claims: () => eachOf([]),
      ensureQueued: (key) => void enqueued.push(key),
      isLeading: () => true,
      intervalMs: 3_600_000,
      log: silentLog,
      ...o,
    });
    sweeps.push(sweep);
    ticks.push(setInterval(() => sweep.tick(), 5));
    return sweep;
  };
  const snapshot = (
    name: string,
    finalizers: readonly string[],
    at = namespace,
  ): Promise<Snapshot> =>
    kube.create<Snapshot>(snapshots, at, {
      apiVersion: 'snapshot.storage.k8s.io/v1',
      kind: 'VolumeSnapshot',
      metadata: { name, namespace: at, finalizers },
      spec: { source: { persistentVolumeClaimName: 'c' } },
    });
  const mine = (): string[] =>
    enqueued.filter((key) => key.namespace === namespace).map(({ name }) => name);

  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    await installCrds(kube);
  });
  after(async () => {
    await cluster.close();
  });
  beforeEach(async () => {
    serial += 1;
    namespace = `sweep-${serial}`;
    await kube.create(
      { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespace', namespaced: false },
      undefined,
      {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name: namespace },
      },
    );
    sweeps = [];
    ticks = [];
    enqueued = [];
    lists = 0;
  });
  afterEach(() => {
    ticks.forEach(clearInterval);
    for (const sweep of sweeps) sweep.stop();
    cluster.api.faults.clear();
  });

  it('enqueues a snapshot with an orphaned finalizer when leadership begins (L-03)', async () => {
    const { metadata } = await snapshot('orphan', [OURS]);
    start().begin();
    await until(() => enqueued.length > 0, 'it is found');
    assert.deepEqual(mine(), ['orphan']);
    assert.deepEqual(
      enqueued.find(({ uid }) => uid === metadata.uid),
      { kind: 'snapshot', uid: metadata.uid, namespace, name: 'orphan' },
    );
  });

  it('ignores a snapshot that has only foreign finalizers (L-07)', async () => {
    await snapshot('foreign', [FOREIGN]);
    await snapshot('bare', []);
    await snapshot('orphan', [FOREIGN, OURS]);
    start().begin();
    await until(() => mine().length > 0, 'the orphan is found');
    assert.deepEqual(mine(), ['orphan']);
  });

  it('ignores a snapshot that a pending claim of any namespace needs (L-08)', async () => {
    await snapshot('used', [OURS]);
    await snapshot('z-orphan', [OURS]);
    const dataSource = {
      kind: 'VolumeSnapshot',
      apiGroup: 'snapshot.storage.k8s.io',
      name: 'used',
    };
    const claim = aClaim({ metadata: { namespace }, spec: { dataSource } });
    start({ claims: () => eachOf([claim]) }).begin();
    await until(() => mine().length > 0, 'the orphan is found');
    assert.deepEqual(mine(), ['z-orphan']);
  });

  it('sweeps again after the interval', async () => {
    start({ intervalMs: 20 });
    await snapshot('late', [OURS]);
    await until(() => mine().length >= 2, 'it is found, and found again');
  });

  it('reads many snapshots in pages', async () => {
    const names = Array.from({ length: 520 }, (_, i) => `s${String(i).padStart(3, '0')}`);
    for (let from = 0; from < names.length; from += 40)
      await Promise.all(names.slice(from, from + 40).map((name) => snapshot(name, [OURS])));
    start().begin();
    await until(() => mine().length === names.length, 'all are found');
    assert.ok(lists > 1);
  });

  it('does not run while another ingest leads', async () => {
    await snapshot('orphan', [OURS]);
    let leads = false;
    start({ isLeading: () => leads, intervalMs: 10 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(lists, 0);
    leads = true;
    await until(() => mine().length > 0, 'it runs once this one leads');
  });

  it('is off for a driver without snapshots (L-06) and with an interval of 0', () => {
    const capabilities = new Set(['CREATE_DELETE_SNAPSHOT']);
    assert.equal(shouldSweep(1, capabilities), true);
    assert.equal(shouldSweep(1, new Set(['CREATE_DELETE_VOLUME'])), false);
    assert.equal(shouldSweep(0, capabilities), false);
    assert.equal(shouldSweep(-1, capabilities), false);
  });

  it('stops, with one log line, if listing is forbidden, until the next leadership', async () => {
    await snapshot('orphan', [OURS]);
    const lines: string[] = [];
    const log = createLogger({
      name: 'test',
      verbosity: 9,
      format: 'text',
      write: (line) => void lines.push(line),
    });
    const allow = cluster.api.faults.inject({
      action: { kind: 'status', code: 403 },
      verb: 'list',
      plural: 'volumesnapshots',
      times: Infinity,
    });
    const sweep = start({ intervalMs: 10, log });
    await until(() => lines.length > 0, 'it is logged');
    allow();
    await new Promise((resolve) => setTimeout(resolve, 60));
    assert.equal(lists, 1);
    assert.deepEqual(mine(), []);
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /until this process leads again/);
    sweep.begin();
    await until(() => mine().length > 0, 'the next leadership finds it');
  });

  it('tries again after the interval while the API server is down', async () => {
    await snapshot('orphan', [OURS]);
    cluster.api.faults.inject({
      action: { kind: 'status', code: 500 },
      verb: 'list',
      plural: 'volumesnapshots',
      times: 2,
    });
    start({ intervalMs: 10 });
    await until(() => mine().length > 0, 'it is found');
    assert.ok(lists >= 3);
  });

  it('logs nothing while the snapshot CRDs are missing, and finds them later (L-05)', async () => {
    await removeCrds(kube);
    const lines: string[] = [];
    const log = createLogger({
      name: 'test',
      verbosity: 9,
      format: 'text',
      write: (line) => void lines.push(line),
    });
    start({ intervalMs: 10, log });
    await until(() => lists > 2, 'it has swept');
    await installCrds(kube);
    await snapshot('orphan', [OURS]);
    await until(() => mine().length > 0, 'it is found');
    assert.deepEqual(lines, []);
  });
});

async function* eachOf(claims: readonly Claim[]): AsyncGenerator<Claim> {
  await Promise.resolve();
  yield* claims;
}
