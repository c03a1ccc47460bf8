import { explainLeaseError } from '../election/lease-error.ts';
import type { KubeClient } from '../kube/client.ts';
// The annotation is called sutler.dev/epoch, the incarnation id's former name.
import { INCARNATION } from '../kube/keys.ts';
import { isAlreadyExists, isConflict } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import type { IncarnationIdStore } from './incarnation-check.ts';

interface LeaseRef {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'update'>;
  readonly namespace: string;
  readonly name: string;
}

/** How often a write is tried that other writers of the Lease come before. */
const MAX_TRIES = 10;

/** Keeps the incarnation id in an annotation of the driver's Lease. */
export function leaseIncarnationStore(lease: LeaseRef): IncarnationIdStore {
  const { client, namespace, name } = lease;
  return {
    async read() {
      const stored = await explainLeaseError(lease, client.get<Lease>(leases, { namespace, name }));
      return stored?.metadata.annotations?.[INCARNATION];
    },
    async write(id) {
      for (let tries = 0; tries < MAX_TRIES; tries += 1)
        if (await explainLeaseError(lease, annotate(lease, id))) return;
      throw new Error(
        `the Lease ${namespace}/${name} changed during each of ${MAX_TRIES} tries to annotate it`,
      );
    },
  };
}

/** Writes with create and update, the verbs that upstream's role grants.
 * @returns false where another writer came first */
async function annotate({ client, ...ref }: LeaseRef, id: string): Promise<boolean> {
  const lease = await client.get<Lease>(leases, ref);
  try {
    if (lease === undefined) {
      await client.create(leases, ref.namespace, {
        apiVersion: apiVersionOf(leases),
        kind: leases.kind,
        metadata: { ...ref, annotations: { [INCARNATION]: id } },
        spec: {},
      });
    } else {
      const annotations = { ...lease.metadata.annotations, [INCARNATION]: id };
      await client.update(leases, ref, { ...lease, metadata: { ...lease.metadata, annotations } });
    }
    return true;
  } catch (error) {
    if (isConflict(error) || isAlreadyExists(error)) return false;
    throw error;
  }
}
