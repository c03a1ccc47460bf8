import { performance } from 'node:perf_hooks';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import { type JobKey, keyId } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import { RecordsUnavailable } from '../records/ask-redis.ts';
import { OwnershipLost } from '../records/volume-record.ts';
import type { Logger } from '../runtime/log.ts';
import { traceStep } from '../runtime/trace-step.ts';

/** Calls a processor for a key, logs how the run ended, and turns errors of the API server and of
 * Redis into outcomes.
 * @throws any other error: it is a defect */
export async function runToOutcome(
  key: JobKey,
  log: Logger,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
  const startedMs = performance.now();
  const outcome = await run().catch(toOutcome);
  traceStep(log, 'run', startedMs);
  const object = key.namespace === '' ? key.name : `${key.namespace}/${key.name}`;
  const fields = { [key.kind]: object, key: keyId(key), outcome: outcome.kind };
  if (outcome.kind === 'done') log.debug({ ...fields, note: outcome.note }, 'run ended');
  else if (outcome.kind === 'retry' || outcome.kind === 'parked')
    log.warn({ ...fields, reason: outcome.reason }, 'run failed');
  else log.debug({ ...fields, reason: outcome.reason }, 'run will be repeated');
  return outcome;
}

/** `later` while the API server or Redis is down or the record has another owner; `retry` if the
 * API server refused. */
function toOutcome(error: unknown): Outcome {
  if (error instanceof OwnershipLost || error instanceof RecordsUnavailable)
    return { kind: 'later', reason: error.message };
  if (!(error instanceof KubeError)) throw error;
  return { kind: isOutage(error) ? 'later' : 'retry', reason: error.message };
}
