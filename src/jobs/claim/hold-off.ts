import type { Claim } from '../../kube/objects.ts';
import type { Run } from '../../queue/run.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { ProcessorPorts } from '../ports.ts';

/* The hold-off of a claim whose request the driver called infeasible (InvalidArgument). It ends
 * after its time, or when the class was deleted and created again. No edit ends it, since the same
 * request would fail again (sig-storage-lib-external-provisioner controller/controller.go
 * delayProvisioningIfRecentlyInfeasible). */

/** The fields of a `retry` outcome that start a hold-off, with the class's UID as its scope. */
export function startHoldOff(
  ports: Pick<ProcessorPorts, 'classOf' | 'retryMaxMs'>,
  claim: Claim | undefined,
): { readonly minDelayMs: number; readonly holdOffScope?: string } {
  const cls = claim === undefined ? undefined : ports.classOf(classNameOf(claim));
  return {
    minDelayMs: ports.retryMaxMs,
    ...(cls === undefined ? {} : { holdOffScope: cls.metadata.uid }),
  };
}

/** Delays a claim until its hold-off ends.
 * @returns undefined if there is none */
export async function delayIfRecentlyInfeasible(
  { classOf, retryMaxMs }: Pick<ProcessorPorts, 'classOf' | 'retryMaxMs'>,
  claim: Claim | undefined,
  run: Pick<Run, 'lastReason' | 'heldOffMs'>,
): Promise<Outcome | undefined> {
  if (claim === undefined || (claim.spec.volumeName ?? '') !== '') return undefined;
  const cls = classOf(classNameOf(claim));
  if (cls === undefined) return undefined;
  // At most --retry-interval-max, in case that was lowered or a clock was set back.
  const delayMs = Math.min(await run.heldOffMs(cls.metadata.uid), retryMaxMs);
  if (delayMs === 0) return undefined;
  const reason = (await run.lastReason()) ?? 'the driver called the request infeasible';
  return { kind: 'later', reason, delayMs };
}
