import { CsiError } from '../../csi/status.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Attempt } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';
import { withoutSecrets } from '../secret-values.ts';

/** How old the look at the PV may be when DeleteVolume is sent (invariant 7). */
const FRESH_MS = 2_000;
const MOST_CALLS = 5;

/** A volume that the driver has just made and that no PV can be made of. */
export interface UnusableVolume {
  readonly attempt: Attempt;
  readonly handle: string;
  /** Its PV would have this name. */
  readonly name: string;
  /** The values that CreateVolume got. */
  readonly secrets: Readonly<Record<string, string>>;
}

/** Deletes a volume right after it was made; only for the first answer of its record, and only
 * where no PV has its name (invariant 7).
 * @returns why it may still be there; undefined: it is gone
 * @throws KubeError where the PV can't be looked for */
export async function cleanUp(
  ports: ProcessorPorts,
  { attempt, handle, name, secrets }: UnusableVolume,
): Promise<string | undefined> {
  const readMs = ports.clock.nowMs();
  if ((await ports.kube.get<Volume>(volumes, { name })) !== undefined)
    return `PersistentVolume ${name} exists`;
  const endMs = Math.min(attempt.notAfterMs, readMs + FRESH_MS);
  let failure = 'the look at its PersistentVolume took too long';
  for (let call = 1; call <= MOST_CALLS && ports.clock.nowMs() < endMs; call += 1) {
    try {
      await ports.csi.deleteVolume(
        { volumeId: handle, secrets },
        { timeoutMs: ports.timeoutMs, notAfterMs: endMs, gateway: attempt.gateway },
      );
      return undefined;
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      failure = withoutSecrets(error, Object.values(secrets)).message;
    }
  }
  return failure;
}
