import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import { Informers } from '#src/ingest/objects/informers.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { volumes } from '#src/kube/resources.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from '../../harness/until.ts';
import { SourceBed } from './source-bed.ts';

// sources.test.ts has what it shares with the webhook source.
describe('Informers', () => {
  let bed: SourceBed<Informers>;
  /** Lists of all volumes, and no further pages. */
  let lists = 0;
  beforeEach(async () => {
    lists = 0;
    bed = await SourceBed.open(Informers, (kube) => ({
      ...kube,
      list: ((resource, o = {}) => {
        if (resource === volumes && o.limit !== 1 && o.continueToken === undefined) lists += 1;
        return kube.list(resource, o);
      }) as KubeClient['list'],
    }));
  });
  afterEach(() => bed.close());

  const untilCalled = (name: string) =>
    until(() => bed.calls.includes(`ensure ${name}`), `${name} is enqueued`);
  /** Waits until the watch of volumes has shown all that was written before. */
  const caughtUp = async (marker: string): Promise<void> => {
    await bed.newVolume(`pvc-${marker}`);
    await until(() => bed.source.hasVolume(marker), 'the watch has shown it');
  };
  /** Serves another driver.
   * @returns the names that it is told */
  const serve = async (name: string) => {
    const names: string[] = [];
    const pass = (key: JobKey) => void names.push(key.name);
    const queue = { isAllowing: true, ensureQueued: pass, enqueueNow: pass, promote: pass };
    const driver = { name, controllerCapabilities: new Set<string>() };
    const served = bed.source.serve(
      new EventHandler(driver, queue, bed.source, silentLog),
      () => undefined,
    );
    await served.waitForSync(AbortSignal.timeout(50_000));
    return { names, stop: served.stop };
  };

  it('ignores a claim while a volume has its name, until that is deleted (P-02, R-01)', async () => {
    const { uid } = (await bed.newClaim('served')).metadata;
    await untilCalled('served');
    await caughtUp(uid);
    assert.ok(!(await bed.outstanding()).includes('served'));
    bed.calls.length = 0;
    const annotations = { 'volume.kubernetes.io/selected-node': 'n' };
    await bed.editClaim('served', { metadata: { annotations } });
    await bed.newClaim('after-served');
    await untilCalled('after-served');
    assert.deepEqual(bed.calls, ['ensure after-served']);
    await bed.deleteVolume(`pvc-${uid}`);
    await until(() => bed.calls.join().includes(' served'), 'it is enqueued');
    assert.ok((await bed.outstanding()).includes('served'));
  });

  it('enqueues the claim that a deleted volume of another name names', async () => {
    const { name, uid } = (await bed.newClaim('named')).metadata;
    await untilCalled('named');
    await bed.newVolume('of-named', undefined, { claimRef: { namespace: 'default', name, uid } });
    bed.calls.length = 0;
    await bed.deleteVolume('of-named');
    await until(() => bed.calls.join().includes(' named'), 'it is enqueued');
  });

  it('enqueues what a notice names and the watch has not reported, and only that', async () => {
    const claim = await bed.newClaim('noticed');
    await untilCalled('noticed');
    bed.calls.length = 0;
    await bed.look('persistentvolumeclaims', 'noticed');
    assert.deepEqual(bed.calls, []);
    const newer = { ...claim, metadata: { ...claim.metadata, resourceVersion: 'newer' } };
    const resource = 'persistentvolumeclaims' as const;
    const target = { resource, namespace: 'default', name: 'noticed' };
    for (const object of [newer, undefined]) bed.source.looked({ target, object });
    assert.deepEqual(bed.calls, ['ensure noticed']);
  });

  it('shows a driver that is served later its volumes, until it is stopped', async () => {
    const create = (name: string) =>
      bed.newVolume(name, 'Released', { csi: { driver: 'later.example', volumeHandle: 'h' } });
    await create('later-1');
    await caughtUp('first');
    const { names, stop } = await serve('later.example');
    assert.deepEqual(names, ['later-1']);
    await create('later-2');
    await caughtUp('second');
    assert.ok(bed.source.isFollowingVolumes);
    assert.deepEqual([...bed.source.sharedHandles().values()], [['later-1', 'later-2']]);
    stop();
    await create('later-3');
    await caughtUp('third');
    assert.ok(!names.includes('later-3'));
  });

  it('lists the volumes once for drivers that are served within a moment', async () => {
    const before = lists;
    await Promise.all(['a', 'b', 'c'].map((name) => serve(`${name}.example`)));
    assert.equal(lists, before + 1);
  });
});
