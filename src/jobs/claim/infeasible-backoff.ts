import type { Claim, Class } from '../../kube/objects.ts';
import type { Run } from '../../queue/run.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { classNameOf } from '../../volumes/eligibility.ts';
import type { Dependencies } from '../dependencies.ts';

/* The back-off of a claim whose request the driver called infeasible (InvalidArgument). It ends
 * after its time, or when the class was deleted and created again. No edit ends it, since the same
 * request would fail again (sig-storage-lib-external-provisioner controller/controller.go
 * delayProvisioningIfRecentlyInfeasible). */

/** The fields of a `retry` outcome that start the back-off, with the class's UID as its scope. */
export function startInfeasibleBackoff(
  deps: Dependencies,
  claim: Claim | undefined,
): { readonly minDelayMs: number; readonly infeasibleScope?: string } {
  const uid = classOf(deps, claim)?.metadata.uid;
  const minDelayMs = deps.settings.retryMaxMs;
  return { minDelayMs, ...(uid === undefined ? {} : { infeasibleScope: uid }) };
}

/** Delays a claim until its back-off ends.
 * @returns undefined if there is none */
export async function delayIfRecentlyInfeasible(
  deps: Dependencies,
  claim: Claim | undefined,
  run: Pick<Run, 'lastReason' | 'infeasibleBackoffMs'>,
): Promise<Outcome | undefined> {
  const cls = classOf(deps, claim);
  if (cls === undefined || (claim?.spec.volumeName ?? '') !== '') return undefined;
  // At most --retry-interval-max, in case that was lowered or a clock was set back.
  const delayMs = Math.min(
    await run.infeasibleBackoffMs(cls.metadata.uid),
    deps.settings.retryMaxMs,
  );
  if (delayMs === 0) return undefined;
  const reason = (await run.lastReason()) ?? 'the driver called the request infeasible';
  return { kind: 'later', reason, delayMs };
}

function classOf({ cluster }: Dependencies, claim: Claim | undefined): Class | undefined {
  return claim && cluster.classOf(classNameOf(claim));
}
