import { isOutage, KubeError } from '../kube/kube-error.ts';
import { keyId } from '../queue/contract.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { OwnershipLost, RecordsUnavailable } from '../records/volume-record.ts';
import type { Logger } from '../runtime/log.ts';

/** Runs a processor and turns what is nobody's fault into an outcome: an API server or a Redis that
 * is down, a record that changed hands. */
export async function runToOutcome(
  key: JobKey,
  log: Logger,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  const outcome = await run().catch(outcomeOfOutage);
  const object = key.namespace === '' ? key.name : `${key.namespace}/${key.name}`;
  const fields = { [key.kind]: object, key: keyId(key), outcome: outcome.kind };
  if (outcome.kind === 'done') log.debug({ ...fields, note: outcome.note }, 'run ended');
  else if (outcome.kind === 'retry' || outcome.kind === 'parked')
    log.warn({ ...fields, reason: outcome.reason }, 'run failed');
  else log.debug({ ...fields, reason: outcome.reason }, 'run comes back');
  return outcome;
}

function outcomeOfOutage(error: unknown): Outcome {
  if (error instanceof OwnershipLost || error instanceof RecordsUnavailable)
    return { kind: 'later', reason: error.message };
  if (!(error instanceof KubeError)) throw error;
  return isOutage(error)
    ? { kind: 'later', reason: error.message }
    : { kind: 'retry', reason: error.message, error };
}
