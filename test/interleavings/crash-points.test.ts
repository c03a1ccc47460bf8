import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Claim } from '#src/kube/objects.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { DRIVER } from '../jobs/rig.ts';
import type { Orders, Place } from './killed-worker.ts';
import { Pause, Story } from './story.ts';
import { until } from '../harness/until.ts';

const SCRIPT = fileURLToPath(new URL('killed-worker.js', import.meta.url));

/** A worker process is killed by SIGKILL at each place of a run. It runs two claims: one stays, the
 * other is deleted before another worker goes on. */
describe('a worker that is killed', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  const jobOf = (claim: Claim): JobKey => ({
    kind: 'claim',
    uid: claim.metadata.uid,
    namespace: 'default',
    name: claim.metadata.name,
  });

  /** Starts the process; `killed` resolves when SIGKILL has ended it. */
  function start(
    jobs: readonly JobKey[],
    place: Place,
    className: string,
  ): { pid: number; killed: Promise<void> } {
    const { rig } = story;
    const orders: Orders = {
      redisUrl: rig.redisUrl,
      kubeconfig: rig.cluster.kubeconfig,
      gateway: join(rig.dir, 'gateway.sock'),
      driver: DRIVER,
      className,
      jobs,
      place,
    };
    const child = spawn(
      process.execPath,
      ['--enable-source-maps', SCRIPT, JSON.stringify(orders)],
      {
        stdio: ['ignore', 'inherit', 'inherit'],
      },
    );
    const killed = once(child, 'exit').then((end) => assert.deepEqual(end, [null, 'SIGKILL']));
    return { pid: child.pid ?? 0, killed };
  }

  /** Both claims are of one class. */
  async function twoClaims(): Promise<readonly [Claim, Claim]> {
    const kept = await story.rig.claim();
    const { storageClassName = '' } = kept.spec;
    return [kept, await story.rig.claim({ className: storageClassName })];
  }

  async function finishBoth(kept: Claim, deleted: Claim): Promise<void> {
    for (const { metadata } of [kept, deleted]) {
      if ((await story.rig.record(metadata.uid))['owner']) await story.endOwnership(metadata.uid);
    }
    await story.deleteClaim(deleted);
    await Promise.all([story.runUntilDone(kept), story.runUntilDone(deleted)]);
    await story.assertOneVolume(kept);
    await story.assertNothingLeft(deleted);
    assert.deepEqual(story.doubles, []);
  }

  const CREATION: readonly {
    readonly place: Place;
    readonly title: string;
    readonly calls: number;
    readonly state: string;
  }[] = [
    { place: 'opened', title: 'after it opened the record', calls: 1, state: 'creating' },
    {
      place: 'answered',
      title: 'when the driver has answered and no PV is written',
      calls: 2,
      state: 'creating',
    },
    {
      place: 'written',
      title: 'when the PV is stored and the record not closed',
      calls: 1,
      state: 'creating',
    },
    { place: 'closed', title: 'right after it closed the record', calls: 1, state: 'stored' },
  ];
  for (const { place, title, calls, state } of CREATION) {
    it(`${title} leaves one volume, for the claim that stays`, async () => {
      const [kept, deleted] = await twoClaims();
      await start([jobOf(kept), jobOf(deleted)], place, kept.spec.storageClassName ?? '').killed;
      assert.equal((await story.rig.record(kept.metadata.uid))['state'], state);
      const handle = (await story.rig.volumeOf(kept))?.spec.csi?.volumeHandle;
      await finishBoth(kept, deleted);
      assert.equal(story.creates(kept).length, calls);
      if (handle !== undefined)
        assert.equal((await story.rig.volumeOf(kept))?.spec.csi?.volumeHandle, handle);
    });
  }

  it('while the driver works leaves one volume, for the claim that stays', async () => {
    const [kept, deleted] = await twoClaims();
    const pause = new Pause();
    let waiting = 0;
    let cancelled = 0;
    story.script(async ({ method, signal }) => {
      if (method !== 'CreateVolume' || waiting === 2) return;
      waiting += 1;
      signal.addEventListener('abort', () => (cancelled += 1), { once: true });
      await pause.wait();
    });
    const { pid, killed } = start(
      [jobOf(kept), jobOf(deleted)],
      'never',
      kept.spec.storageClassName ?? '',
    );
    await until(() => waiting === 2, 'both calls are at the driver');
    process.kill(pid, 'SIGKILL');
    await killed;
    await until(() => cancelled === 2, 'the gateway has cancelled both calls at the driver');
    pause.resume();
    await finishBoth(kept, deleted);
  });

  const DELETION: readonly {
    readonly place: Place;
    readonly title: string;
    readonly calls: number;
    readonly state: string;
  }[] = [
    { place: 'opened', title: 'after it opened a deletion', calls: 1, state: 'deleting' },
    {
      place: 'answered',
      title: 'when the driver has deleted the volume',
      calls: 2,
      state: 'deleting',
    },
    {
      place: 'closed',
      title: 'when the deletion is closed and the PV still exists',
      calls: 1,
      state: 'gone',
    },
    {
      place: 'written',
      title: 'when the PV is being deleted and still has its finalizer',
      calls: 1,
      state: 'gone',
    },
  ];
  for (const { place, title, calls, state } of DELETION) {
    it(`${title} leaves no volume behind`, async () => {
      const claim = await story.rig.claim();
      await story.runUntilDone(claim);
      await story.deleteClaim(claim);
      await until(
        async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
        'the volume is released',
      );
      const volume = await story.rig.volumeOf(claim);
      const job: JobKey = {
        kind: 'volume',
        uid: volume?.metadata.uid ?? '',
        namespace: '',
        name: volume?.metadata.name ?? '',
      };
      await start([job], place, claim.spec.storageClassName ?? '').killed;
      const record = await story.rig.record(claim.metadata.uid);
      assert.equal(record['state'], state);
      if (record['owner']) await story.endOwnership(claim.metadata.uid);
      await story.runUntilDone(claim);
      await story.assertNothingLeft(claim);
      assert.equal(story.deletes().length, calls);
    });
  }
});
