import { explainLeaseError } from '../election/lease-error.ts';
import type { KubeClient } from '../kube/client.ts';
import { DATA_EPOCH, DATA_EPOCH_SEQUENCE } from '../kube/keys.ts';
import { isAlreadyExists, isConflict } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import type { DataEpoch, DataEpochIdStore } from './data-epoch-check.ts';

interface LeaseRef {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'update'>;
  readonly namespace: string;
  readonly name: string;
}

/** How often a write is tried that other writers of the Lease come before. */
const MAX_TRIES = 10;

/** The annotations of a renewal: how far a data epoch has come. Without the process of Redis
 * where the Lease is released: what is restarted after that was at rest. */
export function sequenceAnnotations(
  { id, sequence, server }: DataEpoch,
  isReleased: boolean,
): Readonly<Record<string, string>> {
  return { [DATA_EPOCH_SEQUENCE]: `${id}/${sequence}/${isReleased ? '' : server}` };
}

/** Keeps the data epoch in annotations of the driver's Lease. The leader's renewals write how far
 * it has come. */
export function leaseDataEpochStore(lease: LeaseRef): DataEpochIdStore {
  const { client, namespace, name } = lease;
  return {
    async read() {
      const stored = await explainLeaseError(lease, client.get<Lease>(leases, { namespace, name }));
      const { [DATA_EPOCH]: id, [DATA_EPOCH_SEQUENCE]: reached = '' } =
        stored?.metadata.annotations ?? {};
      if (id === undefined) return undefined;
      const [ofId, sequence, server = ''] = reached.split('/');
      return ofId === id
        ? { id, sequence: Number(sequence), server }
        : { id, sequence: 0, server: '' };
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
        metadata: { ...ref, annotations: { [DATA_EPOCH]: id } },
        spec: {},
      });
    } else {
      const annotations = { ...lease.metadata.annotations, [DATA_EPOCH]: id };
      await client.update(leases, ref, { ...lease, metadata: { ...lease.metadata, annotations } });
    }
    return true;
  } catch (error) {
    if (isConflict(error) || isAlreadyExists(error)) return false;
    throw error;
  }
}
