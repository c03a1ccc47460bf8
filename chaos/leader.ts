import { leaseName } from '#src/election/lease.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import type { Supervised } from './supervised.ts';

/** The processes that compete for the driver's Lease. */
export interface Replicas {
  readonly client: KubeClient;
  readonly driverName: string;
  /** Of the Lease. */
  readonly namespace: string;
  readonly ingest: readonly Supervised[];
}

/** Short, so that a frozen API server delays no other fault for long. */
const LEASE_READ_MS = 2_000;

/** The process whose pid is in the Lease; the first one while there is no leader, or while the API
 * server does not answer. */
export async function leaderOf(replicas: Replicas): Promise<Supervised | undefined> {
  const { client, driverName, namespace, ingest } = replicas;
  const at = { namespace, name: leaseName(driverName) };
  const lease = await client
    .get<Lease>(leases, at, { timeoutMs: LEASE_READ_MS })
    .catch(() => undefined);
  const holder = lease?.spec?.holderIdentity ?? '';
  return ingest.find(({ pid }) => pid !== undefined && holder.includes(`-${pid}-`)) ?? ingest[0];
}
