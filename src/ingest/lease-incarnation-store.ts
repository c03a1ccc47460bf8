import type { KubeClient } from '../kube/client.ts';
import { EPOCH } from '../kube/keys.ts';
import { isAlreadyExists, isConflict } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import type { IncarnationIdStore } from './incarnation-check.ts';

export interface LeaseIncarnationOptions {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'update'>;
  readonly namespace: string;
  readonly name: string;
}

/** The epoch as an annotation of the driver's Lease. Written with update, as upstream's role
 * allows, and again when somebody was faster. */
export function leaseIncarnationStore({
  client,
  namespace,
  name,
}: LeaseIncarnationOptions): IncarnationIdStore {
  const ref = { namespace, name };
  const write = async (epoch: string): Promise<boolean> => {
    const lease = await client.get<Lease>(leases, ref);
    try {
      if (lease === undefined) {
        const metadata = { namespace, name, annotations: { [EPOCH]: epoch } };
        await client.create(leases, namespace, {
          apiVersion: apiVersionOf(leases),
          kind: leases.kind,
          metadata,
          spec: {},
        });
      } else {
        const metadata = {
          ...lease.metadata,
          annotations: { ...lease.metadata.annotations, [EPOCH]: epoch },
        };
        await client.update(leases, ref, { ...lease, metadata });
      }
      return true;
    } catch (error) {
      if (isConflict(error) || isAlreadyExists(error)) return false;
      throw error;
    }
  };
  return {
    read: async () => (await client.get<Lease>(leases, ref))?.metadata.annotations?.[EPOCH],
    async write(epoch) {
      for (let tries = 0; tries < 10; tries += 1) if (await write(epoch)) return;
      throw new Error(`the Lease ${namespace}/${name} changes too often to be annotated`);
    },
  };
}
