import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { claims, leases } from '#src/kube/resources.ts';
import { useQueue } from '#src/queue/queues.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { VolumeLedger } from '../harness/change-over/volume-ledger.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { until } from '../harness/until.ts';

const LEASE = { namespace: 'default', name: 'sample-csi-sutler-dev' };
const LEASE_FLAGS = [
  '--leader-election-lease-duration=2s',
  '--leader-election-renew-deadline=1500ms',
  '--leader-election-retry-period=300ms',
];
/** Long enough that some calls are always under way. */
const CALL_MS = 100;

async function proceedSlowly({ proceed }: DriverCall): ReturnType<DriverCall['proceed']> {
  await systemClock.sleep(CALL_MS);
  return proceed();
}

/** All processes of a test, and the driver's calls. */
async function openChangeOver(t: TestContext) {
  const ledger = new VolumeLedger(() => false);
  const bed = await ProcessBed.open({
    onCall: (call) => ledger.onCall({ ...call, proceed: () => proceedSlowly(call) }),
  });
  t.after(() => bed.close());
  return {
    bed,
    ledger,
    startIngest: (...flags: string[]): Promise<Running> =>
      bed.startIngest(...LEASE_FLAGS, ...flags),
    waiting: (): Promise<number> =>
      useQueue({ redis: bed.redis.redis, prefix: 'csi', driver: DRIVER }, 'claim', (queue) =>
        queue.getJobCountByTypes('wait', 'active', 'prioritized', 'delayed'),
      ),
    /** How many creations and deletions wait because nothing new is begun. */
    async countParked(why: string): Promise<number> {
      const { redis } = bed.redis;
      const keys = await redis.keys(`{csi}:last-run:${DRIVER}:*`);
      const found = await Promise.all(keys.map((key) => redis.get(key)));
      return found.filter((text) => text?.includes(`nothing new is begun: ${why}`)).length;
    },
  };
}

// Side by side, because they wait most of the time.
describe('a change-over', { concurrency: 2 }, () => {
  it('without an ingest is seen by the workers, which promote nothing until one leads', async (t) => {
    const { bed, ledger, startIngest, waiting, countParked } = await openChangeOver(t);
    const jobs = await bed.startJobs('--worker-threads=2');
    const ingest = await startIngest();
    const made = await Promise.all(Array.from({ length: 20 }, () => bed.newClaim()));
    await until(() => ledger.creations > 0, 'the first volume');
    await ingest.stop();
    const lease = await bed.kube.get<Lease>(leases, LEASE);
    assert.ok(lease !== undefined);
    const { leaseTransitions = 0 } = lease.spec ?? {};
    const hold = { holderIdentity: 'csi-provisioner-0', leaseTransitions: leaseTransitions + 1 };
    const spec = { ...lease.spec, ...hold, leaseDurationSeconds: 60 };
    await bed.kube.update<Lease>(leases, LEASE, { ...lease, spec });
    const allWait = async () => (await countParked('')) === (await waiting());
    await until(allWait, 'nothing more is begun');
    assert.ok((await waiting()) > 0, 'claims wait');

    // The same claims, once an ingest leads again.
    const released = await bed.kube.get<Lease>(leases, LEASE);
    const free = { ...released?.spec, holderIdentity: '', leaseDurationSeconds: 1 };
    await bed.kube.update<Lease>(leases, LEASE, { ...released, spec: free });
    await startIngest();
    const areBound = async (): Promise<boolean> =>
      (await Promise.all(made.map((claim) => bed.isBound(claim)))).every(Boolean);
    await until(areBound, 'all claims are bound');
    assert.deepEqual(ledger.madeAgain(), []);
    await jobs.stop();
  });

  it('begins with a drain, during which nothing new is started and after which all is', async (t) => {
    const { bed, startIngest, countParked } = await openChangeOver(t);
    await bed.startJobs();
    await startIngest();
    const before = await bed.newClaim();
    await until(() => bed.isBound(before), 'a claim is bound');
    assert.match(await bed.operate('drain', '--wait'), /nothing that was begun is left/);
    const during = await bed.newClaim();
    await bed.kube.delete<Claim>(claims, before.metadata);
    const bothWait = async () => (await countParked('sutler is drained')) === 2;
    await until(bothWait, 'a creation and a deletion wait');
    assert.match(await bed.operate('drain', '--undo'), /the drain of .* is ended/);
    await until(() => bed.isBound(during), 'the claim is bound');
    await until(() => bed.driver.volumes().length === 1, 'the volume is deleted');
  });
});
