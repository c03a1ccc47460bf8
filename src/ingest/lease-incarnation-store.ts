import type { KubeClient } from '../kube/client.ts';
// The annotation is called sutler.dev/epoch, the incarnation id's former name.
import { INCARNATION } from '../kube/keys.ts';
import { isAlreadyExists, isConflict } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import type { IncarnationIdStore } from './incarnation-check.ts';

export interface LeaseIncarnationOptions {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'update'>;
  readonly namespace: string;
  readonly name: string;
}

/** How often a write that met another writer's is repeated. */
const MAX_TRIES = 10;

/** Keeps the incarnation id in an annotation of the driver's Lease. */
export function leaseIncarnationStore(options: LeaseIncarnationOptions): IncarnationIdStore {
  const { client, namespace, name } = options;
  return {
    async read() {
      const lease = await client.get<Lease>(leases, { namespace, name });
      return lease?.metadata.annotations?.[INCARNATION];
    },
    async write(id) {
      for (let tries = 0; tries < MAX_TRIES; tries += 1) if (await annotate(options, id)) return;
      throw new Error(
        `the Lease ${namespace}/${name} changed during each of ${MAX_TRIES} tries to annotate it`,
      );
    },
  };
}

/** Writes with create and update, the verbs that upstream's role grants.
 * @returns false where another writer came first */
async function annotate(options: LeaseIncarnationOptions, id: string): Promise<boolean> {
  const { client, namespace, name } = options;
  const ref = { namespace, name };
  const lease = await client.get<Lease>(leases, ref);
  try {
    if (lease === undefined) {
      await client.create(leases, namespace, {
        apiVersion: apiVersionOf(leases),
        kind: leases.kind,
        metadata: { namespace, name, annotations: { [INCARNATION]: id } },
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
