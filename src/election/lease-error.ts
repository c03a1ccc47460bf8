import { isForbidden } from '../kube/kube-error.ts';
import { messageOf } from '../runtime/error-message.ts';

export interface LeaseRef {
  readonly namespace: string;
  readonly name: string;
  /** Whose account asks; ingest's unless given. jobs only reads. */
  readonly account?: 'ingest' | 'jobs';
}

const RIGHTS = {
  ingest: "ingest's account get, list, watch, create and update",
  jobs: "jobs' account get, list and watch",
} as const;

/** Passes on the answer to a request about a Lease. Its error says which Lease it is and, where the
 * API server forbids the request, what to grant. */
export async function explainLeaseError<T>(
  { namespace, name, account = 'ingest' }: LeaseRef,
  answer: Promise<T>,
): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    const fix = isForbidden(error)
      ? `: grant ${RIGHTS[account]} on leases ` +
        `(coordination.k8s.io) in the namespace ${namespace}`
      : '';
    const message = `can't use the Lease ${namespace}/${name}: ${messageOf(error)}${fix}`;
    throw new Error(message, { cause: error });
  }
}
