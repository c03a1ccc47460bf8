import type { Claim } from '../../kube/objects.ts';
import type { Run } from '../../queue/consumer.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { ProcessorPorts } from '../ports.ts';

/* What the driver called infeasible rests: nothing but time, or a class that was made anew, makes
 * another try worth it (spec 02 §4). */

/** How long a request rests, and on account of which class. */
export function infeasibleDelay(
  ports: Pick<ProcessorPorts, 'classOf' | 'retryMaxMs'>,
  claim: Claim | undefined,
): { readonly minDelayMs: number; readonly holdOffScope?: string } {
  const cls = claim === undefined ? undefined : ports.classOf(classNameOf(claim));
  return {
    minDelayMs: ports.retryMaxMs,
    ...(cls === undefined ? {} : { holdOffScope: cls.metadata.uid }),
  };
}

/** The pause goes on, whatever brought the claim here again.
 * @returns undefined where there is none */
export async function delayIfRecentlyInfeasible(
  { classOf, retryMaxMs }: Pick<ProcessorPorts, 'classOf' | 'retryMaxMs'>,
  claim: Claim,
  run: Pick<Run, 'lastReason' | 'heldOffMs'>,
): Promise<Extract<Outcome, { kind: 'later' }> | undefined> {
  const cls = (claim.spec.volumeName ?? '') === '' ? classOf(classNameOf(claim)) : undefined;
  // The pause may have been made shorter since, or a clock set back.
  const delayMs =
    cls === undefined ? 0 : Math.min(await run.heldOffMs(cls.metadata.uid), retryMaxMs);
  if (delayMs === 0) return undefined;
  return {
    kind: 'later',
    reason: (await run.lastReason()) ?? 'the driver called the request infeasible',
    delayMs,
  };
}
