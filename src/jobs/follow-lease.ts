import { KubeLeaseStore } from '../election/kube-lease-store.ts';
import { LeaseFollower } from '../election/lease-follower.ts';
import { leaseNamespace } from '../election/flags.ts';
import { leaseName } from '../election/lease.ts';
import { redisDataEpochStore } from '../records/data-epoch.ts';
import { OtherProvisioner } from '../records/provisioning-pause.ts';
import { systemClock } from '../runtime/clock.ts';
import type { DriverDeps } from './dependencies.ts';

/** Follows the driver's Lease, so that this process sees by itself when another provisioner leads
 * (invariant 10), also when no ingest lives. Resolves when the Lease was read, or could not be. */
export async function followLease({
  context,
  connections: { kube, link, marker },
  driver,
}: DriverDeps): Promise<LeaseFollower> {
  const { flags, closers, env, health, log } = context;
  const namespace = await leaseNamespace(flags.leaderElectionNamespace, env);
  const lease = { namespace, name: leaseName(driver.name), account: 'jobs' } as const;
  const dataEpochs = redisDataEpochStore(link.redis, flags.redisPrefix, driver.name);
  const otherProvisioner = new OtherProvisioner(dataEpochs, log);
  const follower = new LeaseFollower({
    store: new KubeLeaseStore({ client: kube, ...lease, log }),
    lease: `${lease.namespace}/${lease.name}`,
    onSeen: (holder) => marker.isOurs && otherProvisioner.observe(holder),
    clock: systemClock,
    log,
  });
  closers.add('lease follower', () => follower.stop());
  health.ready('lease', () => follower.trouble);
  await follower.waitForFirstRead();
  return follower;
}
