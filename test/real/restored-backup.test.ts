import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { type Reflector, startReflector } from '#src/kube/reflector.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type ChangeOverBed, openChangeOverBed } from '../harness/change-over/bed.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { createSmallClaim } from '../harness/small-claim.ts';
import { until } from '../harness/until.ts';

const open = realControlPlane(process.env, { binder: false });

describe('kube-apiserver whose data is restored from a backup', () => {
  let plane: RealControlPlane;
  let client: KubeClient;
  let reflector: Reflector<Claim>;

  before(async () => {
    plane = await open();
    const access = await loadClusterAccess({ kubeconfig: plane.kubeconfig, env: {} });
    client = createKubeClient({ access, userAgent: 'test', log: silentLog });
    const transform = (raw: unknown) => raw as Claim;
    reflector = startReflector({ client, resource: claims, transform, log: silentLog });
  });
  after(async () => {
    await reflector.stop();
    await client.close();
    await plane.close();
  });

  const create = async (name: string): Promise<string> => {
    const { metadata } = await createSmallClaim(client, { namespace: 'default', name }, {});
    return metadata.resourceVersion;
  };

  it('a watch shows what is made afterwards, with a version that it had passed', async (t) => {
    if (plane.backUp === undefined) return t.skip('the cluster of KUBECONFIG is not restored');
    await reflector.waitForSync();
    const restore = await plane.backUp();
    let passed = '';
    for (let n = 0; n < 300; n += 1) passed = await create(`lost-${n}`);
    await until(() => reflector.get('default/lost-299') !== undefined, 'the watch shows the last');
    await restore();
    const startedMs = Date.now();
    assert.ok(Number(await create('after')) < Number(passed), 'the server went back');
    await until(() => reflector.get('default/after') !== undefined, 'it is shown', 60_000);
    t.diagnostic(`shown after ${Date.now() - startedMs} ms`);
    assert.equal(reflector.get('default/lost-299'), undefined);
  });
});

describe('a cluster and its Redis that are restored from backups of one moment', () => {
  const closers = new Closers();
  let plane: RealControlPlane;
  let bed: ChangeOverBed;
  before(async () => {
    plane = await realControlPlane(process.env, { binder: true })();
    closers.add('cluster', () => plane.close());
    const { kubeconfig } = plane;
    const ingestFlags = ['--audit-interval=2s', '--audit-min-age=3s'];
    bed = await openChangeOverBed({
      kubeconfig,
      workerThreads: 10,
      driverDelayMs: 10,
      ingestFlags,
    });
    closers.add('sutler', async () => assert.deepEqual(await bed.close(), []));
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const namesOf = (kind: string): readonly string[] => [1, 2, 3, 4, 5].map((n) => `${kind}-${n}`);
  const phaseOf = async (name: string): Promise<string | undefined> =>
    (await bed.kube.get<Claim>(claims, { namespace: 'default', name }))?.status?.phase;
  const areBound = async (names: readonly string[]): Promise<boolean> =>
    (await Promise.all(names.map((name) => phaseOf(name)))).every((phase) => phase === 'Bound');
  const create = async (kind: string): Promise<void> => {
    // As kube-controller-manager annotates it, which may not notice that the server went back.
    const annotations = { [STORAGE_PROVISIONER]: bed.driver };
    const spec = { storageClassName: bed.className };
    for (const name of namesOf(kind))
      await createSmallClaim(bed.kube, { namespace: 'default', name, annotations }, spec);
  };
  const bind = async (kind: string): Promise<void> => {
    await create(kind);
    await until(() => areBound(namesOf(kind)), `${kind} are Bound`, 60_000);
  };
  const haveVolumes = async (names: readonly string[]): Promise<boolean> => {
    const { items } = await bed.kube.list<Volume>(volumes, {});
    return names.every((name) => items.some(({ spec }) => spec.claimRef?.name === name));
  };

  it('sutler deletes nothing, serves new claims, and names what was made and deleted since', async (t) => {
    if (plane.backUp === undefined) return t.skip('the cluster of KUBECONFIG is not restored');
    const log = () => readFile(join(bed.folder, 'ingest.log'), 'utf8');
    const before = [await bed.startIngest(), await bed.startJobs()];
    await bind('kept');
    await bind('deleted');
    const saved = new Set(bed.handles());
    const restores = [await plane.backUp(), await bed.backUpRedis()];
    await bind('since');
    for (const name of namesOf('deleted'))
      await bed.kube.delete(claims, { namespace: 'default', name });
    await until(() => bed.handles().length === 10, 'volumes are deleted');
    for (const each of before) await each.stop();
    for (const restore of restores) await restore();

    await bed.startIngest();
    await bed.startJobs();
    await create('after');
    // The controller that binds claims was not restarted with the API server.
    await until(() => haveVolumes(namesOf('after')), 'PVs', 120_000);
    // The controller that was not restarted still misses the PVs that were deleted, and may call
    // their claims Lost.
    const restored = [...namesOf('kept'), ...namesOf('deleted')];
    assert.ok(await haveVolumes(restored));
    const phases = await Promise.all(restored.map((name) => phaseOf(name)));
    t.diagnostic(`phases of the restored claims: ${phases.join(', ')}`);
    assert.ok(phases.every((phase) => phase === 'Bound' || phase === 'Lost'));
    const made = bed.handles().filter((handle) => !saved.has(handle));
    assert.equal(bed.handles().length, 15);
    assert.equal(made.length, 10, 'those since the backup, and those after it');
    await until(
      async () => /orphaned volumes found.* orphans=5 /.test(await log()),
      'orphans',
      60_000,
    );
    await until(async () => /missing=5 /.test(await log()), 'missing volumes', 60_000);
    assert.equal(bed.handles().length, 15);
  });
});
