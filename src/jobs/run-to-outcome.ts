import { performance } from 'node:perf_hooks';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import { type JobKey, logFields } from '../queue/contract.ts';
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
  const why = outcome.kind === 'done' ? { note: outcome.note } : { reason: outcome.reason };
  log.debug({ ...logFields(key), outcome: outcome.kind, ...why }, 'run ended');
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
