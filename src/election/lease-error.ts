import { isForbidden } from '../kube/kube-error.ts';
import { messageOf } from '../runtime/error-message.ts';

/** Passes on the answer to a request about a Lease. Its error says which Lease it is and, where the
 * API server forbids the request, what to grant. */
export async function explainLeaseError<T>(
  { namespace, name }: { readonly namespace: string; readonly name: string },
  answer: Promise<T>,
): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    const fix = isForbidden(error)
      ? `: grant ingest's account get, list, watch, create and update on leases ` +
        `(coordination.k8s.io) in the namespace ${namespace}`
      : '';
    const message = `can't use the Lease ${namespace}/${name}: ${messageOf(error)}${fix}`;
    throw new Error(message, { cause: error });
  }
}
