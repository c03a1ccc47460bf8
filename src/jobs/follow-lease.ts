import { KubeLeaseStore } from '../election/kube-lease-store.ts';
import { LeaseFollower } from '../election/lease-follower.ts';
import { leaseName } from '../election/lease.ts';
import { systemClock } from '../runtime/clock.ts';
import type { DriverDeps } from './dependencies.ts';

/** Follows the driver's Lease, which says whether the driver may be called (docs/leak-proof.md,
 * M2), also when no ingest lives. Resolves when the Lease was read, or could not be. */
export async function followLease(
  { context, connections: { kube }, driver }: DriverDeps,
  namespace: string,
): Promise<LeaseFollower> {
  const { closers, health, log } = context;
  const lease = { namespace, name: leaseName(driver.name) };
  const follower = new LeaseFollower({
    store: new KubeLeaseStore({ client: kube, ...lease, log }),
    lease: `${lease.namespace}/${lease.name}`,
    clock: systemClock,
    log,
  });
  closers.add('lease follower', () => follower.stop());
  health.ready('lease', () => follower.trouble);
  await follower.waitForFirstRead();
  return follower;
}
