import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import type { Class, KubeObject } from '#src/kube/objects.ts';
import { claims, classes, type Resource, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { type DropInBed, openDropInBed } from '../harness/drop-in-bed.ts';
import { type LateWatch, startLateWatch } from '../harness/late-watch.ts';
import type { SutlerProcess as DropIn } from '../harness/program.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';

const CLAIMS = 30;
const LATE_MS = 100;
const MOST_RUNS = 3;
const ARGS = [
  '--leader-election',
  '--leader-election-lease-duration=3s',
  '--leader-election-renew-deadline=2s',
  '--leader-election-retry-period=300ms',
  '--resync-interval=1s',
  '-v=4',
];

const open = realControlPlane(process.env, { binder: false });

describe(`claims that nobody binds, with a watch that is ${LATE_MS} ms late`, () => {
  const closers = new Closers();
  let api: LateWatch;
  let bed: DropInBed;
  const started: DropIn[] = [];
  let made = 0;
  let edits = 0;

  before(async () => {
    const plane = await open();
    closers.add('control plane', () => plane.close());
    const { kubeconfig } = plane;
    api = await startLateWatch(plane, {
      watches: /\/persistentvolumeclaims\?/,
      wait: () => delay(LATE_MS),
    });
    closers.add('late watch', () => api.close());
    const folder = await mkdtemp(join(tmpdir(), 'sutler-late-'));
    closers.add('folder', () => rm(folder, { recursive: true }));
    const ownKubeconfig = join(folder, 'kubeconfig');
    await writeFile(ownKubeconfig, JSON.stringify(api.kubeconfig));
    bed = await openDropInBed({
      kubeconfig,
      ownKubeconfig,
      namespace: 'default',
      driverDelayMs: 2 * LATE_MS,
    });
    closers.add('bed', async () => assert.deepEqual(await bed.close(), []));
    started.push(await bed.start(ARGS));
    await settle(CLAIMS);
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const output = () => started.map((each) => each.output()).join('');
  const resyncs = () => output().match(/enqueued everything outstanding/g)?.length ?? 0;

  /** Waits until sutler has done all that it knew of before: it has provisioned claims that are
   * created now, and edited while they are run, its resync has come, and its journal is empty. */
  async function settle(count = 1): Promise<void> {
    const annotations = { [STORAGE_PROVISIONER]: bed.driverName };
    const created = await Promise.all(
      Array.from({ length: count }, () => bed.createClaim(`claim-${(made += 1)}`, annotations)),
    );
    await edit(claims, created);
    for (const { metadata } of created) {
      const volume = { name: `pvc-${metadata.uid}` };
      const isStored = async () => (await bed.kube.get(volumes, volume)) !== undefined;
      await until(isStored, `${metadata.name} has a PV`);
    }
    const before = resyncs();
    await until(() => resyncs() > before, 'everything outstanding was looked for');
    await until(async () => (await bed.readJournal()).length === 0, 'the journal is empty');
  }

  /** Changes each object in a way that asks for nothing. */
  async function edit(resource: Resource, objects: readonly KubeObject[]): Promise<void> {
    const body = { metadata: { annotations: { edited: `${(edits += 1)}` } } };
    for (const { metadata } of objects)
      await bed.kube.patch(resource, metadata, { type: 'merge', body });
  }

  const editAll = async (resource: Resource): Promise<void> =>
    edit(resource, (await bed.kube.list<KubeObject>(resource)).items);

  async function createClassAgain(): Promise<void> {
    const ref = { name: bed.className };
    const cls = await bed.kube.get<Class>(classes, ref);
    await bed.kube.delete(classes, ref);
    const metadata = { name: bed.className };
    await bed.kube.create(classes, undefined, { ...cls, metadata });
  }

  async function changeLeader(): Promise<void> {
    await started.at(-1)?.stop();
    started.push(await bed.start(ARGS));
  }

  const provocations: Readonly<Record<string, () => unknown>> = {
    'their PVs were written': () => undefined,
    'the claims are edited': () => editAll(claims),
    'their PVs are edited': () => editAll(volumes),
    'their class is edited': () => editAll(classes),
    'their class is created again': createClassAgain,
    'the watches expire': () => api.expireWatches(),
    'another process leads': changeLeader,
  };
  for (const [when, provoke] of Object.entries(provocations))
    it(`are run at most ${MOST_RUNS} times, and the driver asked once each, when ${when}`, async () => {
      await provoke();
      await settle();
      const runs = runsIn(output());
      assert.equal(runs.size, made);
      const counts = [...runs.values()];
      assert.ok(Math.max(...counts) <= MOST_RUNS, `runs a claim: ${counts.join(', ')}`);
      assert.equal(bed.driver.counts.get('CreateVolume'), made);
    });

  it('are not written', () => {
    assert.deepEqual(
      api.writes.filter((each) => each.includes('/persistentvolumeclaims')),
      [],
    );
    const ofVolumes = api.writes.filter((each) => each.includes('/persistentvolumes'));
    assert.deepEqual(ofVolumes, Array(made).fill('POST /api/v1/persistentvolumes'));
  });
});

/** How often each claim was run, by the log of debug level. */
function runsIn(log: string): ReadonlyMap<string, number> {
  const runs = new Map<string, number>();
  for (const [, claim = ''] of log.matchAll(/run ended.*\bclaim="?([^" ]+)/g))
    runs.set(claim, (runs.get(claim) ?? 0) + 1);
  return runs;
}
