import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import {
  DemandWatch,
  type DemandWatchOptions,
  ON_DEMAND,
} from '#src/ingest/dependencies/demand-watch.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import {
  apiVersionOf,
  csiNodes,
  nodes,
  secrets,
  snapshots,
  volumeAttributesClasses,
} from '#src/kube/resources.ts';
import { objectId } from '#src/queue/dependency-index.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { installCrds } from '../../harness/snapshot-crds.ts';
import { until } from '../../harness/until.ts';

const DRIVER = 'a.example.com';
const NODES = 'nodes//*';
const CSI_NODES = 'csinodes//*';

const snapshotId = (name: string): string =>
  objectId({ resource: 'volumesnapshots', namespace: 'default', name });
const secretId = (name: string): string =>
  objectId({ resource: 'secrets', namespace: 'default', name });

describe('demand watch', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let watches: DemandWatch[] = [];
  let changed: string[] = [];
  let lines: string[] = [];
  let nowMs = 0;
  let lists = 0;
  const log = createLogger({
    name: 'test',
    verbosity: 9,
    format: 'text',
    write: (line) => void lines.push(line),
  });

  const start = (o: Partial<DemandWatchOptions> = {}): DemandWatch => {
    const watch = new DemandWatch({
      client: {
        ...kube,
        listItems(...args) {
          lists += 1;
          return kube.listItems(...args);
        },
      },
      driver: DRIVER,
      watchSecrets: false,
      onChange: (object) => void changed.push(object),
      clock: { nowMs: () => nowMs, sleep: () => Promise.resolve() },
      log,
      ...o,
    });
    watches.push(watch);
    return watch;
  };
  const snapshot = (name: string): Promise<KubeObject> =>
    kube.create<KubeObject>(snapshots, 'default', {
      apiVersion: apiVersionOf(snapshots),
      kind: snapshots.kind,
      metadata: { name },
      spec: {},
    });
  const secret = (name: string): Promise<KubeObject> =>
    kube.create<KubeObject>(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name },
    });

  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(async () => {
    await cluster.close();
  });
  beforeEach(() => {
    watches = [];
    changed = [];
    lines = [];
    nowMs = 1_000_000;
    lists = 0;
  });
  afterEach(() => Promise.all(watches.map((watch) => watch.stop())));

  it('sends no request while no key waits', async () => {
    const watch = start({ watchSecrets: true });
    watch.follow(new Set());
    watch.follow(
      new Set([
        'storageclasses//fast',
        'persistentvolumeclaims/default/c',
        'persistentvolumes//pv',
        'unheard-of//x',
      ]),
    );
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.equal(lists, 0);
    assert.equal(watch.versionOf('unheard-of//x'), undefined);
  });

  it('retries a kind that is not installed, logs it once, and finds it later', async () => {
    const watch = start();
    const wanted = new Set([snapshotId('s')]);
    await until(() => {
      watch.follow(wanted);
      return lists >= 3;
    }, 'it has listed a few times');
    assert.equal(watch.versionOf(snapshotId('s')), undefined);
    assert.equal(lines.length, 1, lines.join(''));
    assert.match(lines[0] ?? '', /WARN.*volumesnapshots.*does not serve this resource/);
    await installCrds(kube);
    await until(
      () => watch.versionOf(snapshotId('s')) === '',
      'the kind is known, the object is not there',
    );
    const { metadata } = await snapshot('s');
    await until(() => changed.includes(snapshotId('s')), 'the object is reported');
    assert.equal(watch.versionOf(snapshotId('s')), metadata.resourceVersion);
    watch.follow(wanted);
    assert.equal(lines.length, 2, lines.join(''));
    assert.match(lines[1] ?? '', /INFO.*watching it.*volumesnapshots/);
  });

  it('logs once that watching a kind is forbidden', async () => {
    cluster.api.faults.inject({
      action: { kind: 'status', code: 403 },
      verb: 'list',
      plural: 'volumeattachments',
      times: Infinity,
    });
    const watch = start();
    await until(() => {
      watch.follow(new Set(['volumeattachments//a']));
      return lists >= 3;
    }, 'it has listed a few times');
    cluster.api.faults.clear();
    assert.equal(lines.length, 1, lines.join(''));
    assert.match(lines[0] ?? '', /grant list and watch/);
  });

  it('has the versions of all objects of a kind through one watch', async () => {
    const watch = start();
    const wanted = new Set(['a', 'b', 'c'].map(snapshotId));
    const { metadata } = await snapshot('b');
    watch.follow(wanted);
    await until(
      () => watch.versionOf(snapshotId('b')) === metadata.resourceVersion,
      'the object is known',
    );
    assert.equal(watch.versionOf(snapshotId('a')), '');
    // What was listed is known before the watch is open.
    await until(() => cluster.api.watchCount('volumesnapshots') > 0, 'it watches');
    assert.equal(cluster.api.watchCount('volumesnapshots'), 1);
    await kube.delete(snapshots, { namespace: 'default', name: 'b' });
    await until(() => watch.versionOf(snapshotId('b')) === '', 'its deletion is known');
  });

  it('has no versions of a kind while its watch is interrupted', async () => {
    const watch = start();
    const { metadata } = await snapshot('frozen');
    watch.follow(new Set([snapshotId('frozen')]));
    await until(
      () => watch.versionOf(snapshotId('frozen')) === metadata.resourceVersion,
      'it is known',
    );
    await until(() => cluster.api.watchCount('volumesnapshots') > 0, 'it watches');
    for (const verb of ['list', 'watch'] as const)
      cluster.api.faults.inject({
        action: { kind: 'status', code: 403 },
        verb,
        plural: 'volumesnapshots',
        times: Infinity,
      });
    cluster.api.stopWatches('end', 'volumesnapshots');
    await until(
      () => watch.versionOf(snapshotId('frozen')) === undefined,
      'its version may be out of date',
    );
    cluster.api.faults.clear();
    await until(
      () => watch.versionOf(snapshotId('frozen')) === metadata.resourceVersion,
      'it is known again',
    );
  });

  it('has versions of objects without a namespace', async () => {
    const watch = start();
    const id = objectId({ resource: 'volumeattributesclasses', name: 'gold' });
    const { metadata } = await kube.create<KubeObject>(volumeAttributesClasses, undefined, {
      apiVersion: apiVersionOf(volumeAttributesClasses),
      kind: volumeAttributesClasses.kind,
      metadata: { name: 'gold' },
      driverName: 'd',
      parameters: { a: 'b' },
    });
    watch.follow(new Set([id]));
    await until(() => watch.versionOf(id) === metadata.resourceVersion, 'it is known');
  });

  it('ends a watch some time after the last key stopped waiting, not at once', async () => {
    const watch = start({ lingerMs: 60_000 });
    watch.follow(new Set([snapshotId('x')]));
    await until(() => watch.versionOf(snapshotId('x')) === '', 'it is watched');
    nowMs += 50_000;
    watch.follow(new Set());
    assert.equal(watch.versionOf(snapshotId('x')), '', 'still watched');
    watch.follow(new Set([snapshotId('x')]));
    nowMs += 50_000;
    watch.follow(new Set());
    assert.equal(watch.versionOf(snapshotId('x')), '', 'the time counts from the last wait');
    nowMs += 10_000;
    watch.follow(new Set());
    assert.equal(watch.versionOf(snapshotId('x')), undefined);
    await until(() => cluster.api.watchCount('volumesnapshots') === 0, 'the watch is closed');
  });

  it('watches a single secret by its name, and only while a key waits', async () => {
    const watch = start({ watchSecrets: true, log: silentLog });
    watch.follow(new Set([secretId('login')]));
    await until(() => watch.versionOf(secretId('login')) === '', 'it is watched');
    assert.equal(watch.versionOf(secretId('other')), undefined);
    await secret('other');
    const { metadata } = await secret('login');
    await until(
      () => watch.versionOf(secretId('login')) === metadata.resourceVersion,
      'it was created',
    );
    assert.deepEqual(changed, [secretId('login')]);
    watch.follow(new Set());
    assert.equal(watch.versionOf(secretId('login')), undefined);
    await until(() => cluster.api.watchCount('secrets') === 0, 'the watch is closed');
  });

  it('watches no secret without watchSecrets', async () => {
    const watch = start();
    watch.follow(new Set([secretId('login')]));
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.equal(watch.versionOf(secretId('login')), undefined);
    assert.equal(lists, 0);
  });

  it('watches a hundred secrets at most', async () => {
    const watch = start({ watchSecrets: true, log: silentLog });
    const names = Array.from({ length: 110 }, (_, i) => secretId(`many-${i}`));
    watch.follow(new Set(names));
    const known = (): number => names.filter((id) => watch.versionOf(id) !== undefined).length;
    assert.equal(lists, 100);
    await until(() => known() === 100, 'a hundred are watched');
    watch.follow(new Set(names.slice(-20)));
    await until(() => known() === 20, 'others are watched when some are no longer wanted');
  });

  describe('of nodes', () => {
    before(async () => {
      const node = { metadata: { name: 'one', labels: { zone: 'a' } } };
      await kube.create(nodes, undefined, { apiVersion: 'v1', kind: 'Node', ...node });
      await kube.create(csiNodes, undefined, {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'CSINode',
        metadata: { name: 'one' },
        spec: { drivers: [{ name: DRIVER, nodeID: 'one', topologyKeys: ['zone'] }] },
      });
    });
    const follow = async (): Promise<DemandWatch> => {
      const watch = start({ log: silentLog });
      watch.follow(new Set([NODES, CSI_NODES]));
      await until(() => changed.length > 0, 'the first list is reported');
      return watch;
    };
    const setZone = (zone: string) =>
      kube.patch(
        nodes,
        { name: 'one' },
        { type: 'merge', body: { metadata: { labels: { zone } } } },
      );

    it('has a version of all nodes, one of all CSINodes, and of no single one', async () => {
      const watch = await follow();
      assert.match(watch.versionOf(NODES) ?? '', /^[0-9a-f]{16}$/);
      assert.match(watch.versionOf(CSI_NODES) ?? '', /^[0-9a-f]{16}$/);
      for (const id of ['nodes//one', 'storageclasses//*'])
        assert.equal(watch.versionOf(id), undefined);
    });

    it('reports a burst of changes once, and has another version then', async () => {
      const watch = await follow();
      const version = watch.versionOf(NODES);
      changed = [];
      for (const zone of ['b', 'c', 'd', 'e', 'f']) await setZone(zone);
      await until(() => changed.includes(NODES), 'the change is reported');
      assert.ok(changed.length <= 4, `${changed.length / 2} reports`);
      assert.notEqual(watch.versionOf(NODES), version);
      await setZone('a');
      await until(() => watch.versionOf(NODES) === version, 'the old labels are back');
    });
  });

  it('covers every kind that jobs may wait for and that ingest does not cache', () => {
    assert.deepEqual(
      ON_DEMAND.map(({ plural }) => plural),
      ['volumesnapshots', 'volumesnapshotcontents', 'volumeattributesclasses', 'volumeattachments'],
    );
  });
});
