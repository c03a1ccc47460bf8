import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import {
  shouldSweep,
  SnapshotSweep,
  type SnapshotSweepOptions,
} from '#src/ingest/snapshot-sweep.ts';
import { sourceId } from '#src/journal/list-journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Snapshot } from '#src/kube/objects.ts';
import { snapshots } from '#src/kube/resources.ts';
import { createLogger } from '#src/runtime/log.ts';
import { installCrds, removeCrds } from '../harness/snapshot-crds.ts';
import { until } from '../harness/until.ts';
import { type NewClaim, openRig, type Rig } from '../jobs/rig.ts';
import { aClaim } from '../volumes/builders.ts';

const OURS = 'provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection';
const FOREIGN = 'snapshot.storage.kubernetes.io/volumesnapshot-bound-protection';
const source = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 's' };
const restoring = { dataSource: source };

let rig: Rig;
let kube: KubeClient;
let sweeps: SnapshotSweep[] = [];
let ticks: NodeJS.Timeout[] = [];
let lines: string[] = [];
let lists = 0;
/** By sourceId, of the claims in the journal; undefined: it can't be read. */
let sources: ReadonlySet<string> | undefined;
const openSources = (): Promise<ReadonlySet<string>> =>
  sources === undefined ? Promise.reject(new Error('away')) : Promise.resolve(sources);
/** Each test has its own namespace. */
let namespace = '';

/** A sweep of an ingest whose own view of the claims is out of date: it shows none. */
const start = (o: Partial<SnapshotSweepOptions> = {}): SnapshotSweep => {
  const write = (line: string): void => void lines.push(line);
  const sweep = new SnapshotSweep({
    client: kube,
    claims: () => eachOf([]),
    openSources,
    isLeading: () => true,
    intervalMs: 3_600_000,
    log: createLogger({ name: 'test', verbosity: 0, format: 'text', write }),
    ...o,
  });
  sweeps.push(sweep);
  ticks.push(setInterval(() => sweep.tick(), 5));
  return sweep;
};
const snapshot = (
  name: string,
  finalizers: readonly string[] = [OURS],
  at = namespace,
): Promise<Snapshot> =>
  kube.create<Snapshot>(snapshots, at, {
    apiVersion: 'snapshot.storage.k8s.io/v1',
    kind: 'VolumeSnapshot',
    metadata: { name, namespace: at, finalizers },
    spec: { source: { persistentVolumeClaimName: 'c' }, unknownField: { kept: true } },
  });
const current = (name = 's'): Promise<Snapshot | undefined> =>
  kube.get<Snapshot>(snapshots, { namespace, name });
const finalizers = async (name = 's'): Promise<readonly string[]> =>
  (await current(name))?.metadata.finalizers ?? [];
const isReleased = (name = 's'): Promise<void> =>
  until(async () => !(await finalizers(name)).includes(OURS), `${name} is released`);
/** Sweeps. Resolves when it was decided on all snapshots of the namespace. */
const sweepOnce = async (o: Partial<SnapshotSweepOptions> = {}): Promise<void> => {
  await snapshot('z-last');
  start(o).begin();
  await isReleased('z-last');
};
const fault = (verb: 'list' | 'update', code: number, times: number): (() => void) =>
  rig.cluster.api.faults.inject({
    action: { kind: 'status', code },
    verb,
    plural: 'volumesnapshots',
    times,
  });

describe('snapshot sweep', () => {
  before(async () => {
    rig = await openRig();
    kube = {
      ...rig.kube,
      list: async (resource, options) => {
        if (resource.plural === snapshots.plural) lists += 1;
        return rig.kube.list(resource, options);
      },
    };
    await installCrds(kube);
  });
  after(() => rig.close());
  beforeEach(async () => {
    namespace = await rig.namespace();
    sources = new Set();
    sweeps = [];
    ticks = [];
    lines = [];
    lists = 0;
  });
  afterEach(async () => {
    ticks.forEach(clearInterval);
    for (const sweep of sweeps) sweep.stop();
    rig.cluster.api.faults.clear();
    const { items } = await kube.list<Snapshot>(snapshots, { namespace });
    for (const { metadata } of items) {
      const ref = { namespace, name: metadata.name };
      await kube.patch(snapshots, ref, removeFinalizers);
      await kube.delete(snapshots, ref);
    }
  });

  it('removes only our finalizer, when leadership begins, if no claim needs it (L-01, L-03)', async () => {
    await rig.claim({ name: 'a', namespace, phase: 'Bound', spec: restoring });
    const found = await snapshot('s', [FOREIGN, OURS]);
    start().begin();
    await isReleased();
    const { metadata, ...rest } = (await current()) ?? found;
    assert.deepEqual(metadata.finalizers, [FOREIGN]);
    assert.deepEqual(rest.spec, found.spec);
  });

  const sourceRef = (of: string) => ({
    spec: { dataSourceRef: { ...source, namespace: of } },
  });
  for (const [title, claimsOf] of [
    [
      'one of two claims is Pending (L-02, L-04)',
      () => [
        { name: 'a', phase: 'Bound', spec: restoring },
        { name: 'b', spec: restoring },
      ],
    ],
    [
      'a Pending claim has only a dataSourceRef (L-16)',
      () => [{ name: 'a', ...sourceRef(namespace) }],
    ],
    [
      'a Pending claim of another namespace names it (L-15)',
      async () => [{ name: 'far', namespace: await rig.namespace(), ...sourceRef(namespace) }],
    ],
  ] as const)
    it(`keeps the finalizer while ${title}`, async () => {
      for (const claim of (await claimsOf()) as readonly NewClaim[])
        await rig.claim({ className: 'c', namespace, ...claim });
      await snapshot('s');
      await sweepOnce();
      assert.deepEqual(await finalizers(), [OURS]);
    });

  it('writes no snapshot that has only foreign finalizers (L-07)', async () => {
    const before = await snapshot('foreign', [FOREIGN]);
    await snapshot('bare', []);
    await sweepOnce();
    assert.deepEqual(await current('foreign'), before);
  });

  it('asks the API server nothing more if its own view shows that all are used (L-08)', async () => {
    await snapshot('s');
    const claim = aClaim({ metadata: { namespace }, spec: restoring });
    let asked = 0;
    const list: KubeClient['list'] = (resource, options) => {
      if (resource.plural === 'persistentvolumeclaims') asked += 1;
      return kube.list(resource, options);
    };
    start({ claims: () => eachOf([claim]), client: { ...kube, list }, intervalMs: 10 });
    await until(() => lists >= 3, 'it has swept');
    assert.deepEqual(await finalizers(), [OURS]);
    assert.equal(asked, 0);
  });

  it('keeps the finalizer while the journal can’t be read, and sweeps again', async () => {
    await snapshot('s');
    sources = undefined;
    start({ intervalMs: 10 });
    await until(() => lines.length > 0, 'it is logged');
    assert.match(lines[0] ?? '', /the next sweep tries again/);
    assert.deepEqual(await finalizers(), [OURS]);
    sources = new Set();
    await isReleased();
  });

  it('adds the finalizer again if a restore began between the read and the update', async () => {
    const { metadata } = await snapshot('s', [FOREIGN, OURS]);
    let isRemoved = false;
    const update: KubeClient['update'] = async (resource, ref, object) => {
      sources = new Set([sourceId(snapshots, metadata)]);
      const updated = await kube.update<never>(resource, ref, object);
      isRemoved ||= !(await finalizers()).includes(OURS);
      return updated;
    };
    start({ client: { ...kube, update } }).begin();
    await until(() => isRemoved, 'it is removed');
    await until(async () => (await finalizers()).includes(OURS), 'it is added again');
    assert.deepEqual(await finalizers(), [FOREIGN, OURS]);
  });

  it('adds all finalizers again if it can’t be read any more what is in use', async () => {
    await Promise.all(['a', 'b', 'c'].map((name) => snapshot(name)));
    let reads = 0;
    const away = () => Promise.reject(new Error('the journal is away'));
    start({ openSources: () => ((reads += 1) === 2 ? away() : openSources()) }).begin();
    await until(() => lines.length > 0, 'it is logged');
    assert.match(lines[0] ?? '', /the next sweep tries again/);
    for (const name of ['a', 'b', 'c']) assert.deepEqual(await finalizers(name), [OURS]);
  });

  for (const [what, code] of [
    ['changed meanwhile', 409],
    ['may not be written', 403],
    ['is gone meanwhile', 404],
  ] as const)
    it(`leaves a snapshot that ${what} to the next sweep, and logs nothing`, async () => {
      await snapshot('s');
      fault('update', code, 1);
      await sweepOnce();
      assert.deepEqual([await finalizers(), lines], [[OURS], []]);
      start().begin();
      await isReleased();
    });

  it('does not run while another ingest leads', async () => {
    await snapshot('s');
    let [leads, looks] = [false, 0];
    start({ isLeading: () => (looks++, leads), intervalMs: 10 });
    await until(() => looks > 5, 'it has looked');
    assert.equal(lists, 0);
    leads = true;
    await isReleased();
  });

  it('is off for a driver without snapshots (L-06) and with an interval of 0', () => {
    const snapshotting = new Set(['CREATE_DELETE_SNAPSHOT']);
    assert.equal(shouldSweep(1, snapshotting), true);
    assert.equal(shouldSweep(1, new Set(['CREATE_DELETE_VOLUME'])), false);
    assert.equal(shouldSweep(0, snapshotting), false);
  });

  it('stops, with one log line, if listing is forbidden, until the next leadership', async () => {
    await snapshot('s');
    const allow = fault('list', 403, Infinity);
    const sweep = start({ intervalMs: 0 });
    await until(() => lines.length > 0, 'it is logged');
    allow();
    for (let n = 0; n < 5; n += 1) sweep.tick();
    await snapshot('other');
    assert.equal(lists, 1);
    assert.deepEqual(await finalizers(), [OURS]);
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /until this process leads again/);
    sweep.begin();
    await isReleased();
  });

  for (const verb of ['list', 'update'] as const)
    it(`tries again after the interval while the API server is down for ${verb}`, async () => {
      await snapshot('s');
      fault(verb, 500, 2);
      start({ intervalMs: 10 });
      await isReleased();
      assert.ok(lists >= 3);
    });

  it('logs nothing while the snapshot CRDs are missing, and finds them later (L-05)', async () => {
    await removeCrds(kube);
    start({ intervalMs: 10 });
    await until(() => lists > 2, 'it has swept');
    await installCrds(kube);
    await snapshot('s');
    await isReleased();
    assert.deepEqual(lines, []);
  });
});

const removeFinalizers = { type: 'merge', body: { metadata: { finalizers: null } } } as const;

async function* eachOf(claims: readonly Claim[]): AsyncGenerator<Claim> {
  await Promise.resolve();
  yield* claims;
}
