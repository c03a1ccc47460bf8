import { CsiError } from '../../csi/status.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { type Attempt, MAX_READ_AGE_MS } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';
import { type SecretValues, withoutSecrets } from '../secret-values.ts';

const MAX_CALLS = 5;

/** A volume that the driver has just created and that no PV can be made of. */
export interface UnusableVolume {
  readonly attempt: Attempt;
  readonly handle: string;
  /** The name that its PV would have. */
  readonly name: string;
  /** The values that CreateVolume got. */
  readonly secrets: SecretValues;
}

/** Deletes a volume right after it was created: only after the first answer of its record, and only
 * if no PV has its name (invariant 7).
 * @returns why the volume may still exist; undefined if it is deleted
 * @throws KubeError if the PV can't be read */
export async function cleanUpVolume(
  ports: ProcessorPorts,
  { attempt, handle, name, secrets }: UnusableVolume,
): Promise<string | undefined> {
  const readMs = ports.clock.nowMs();
  if ((await ports.kube.get<Volume>(volumes, { name })) !== undefined)
    return `PersistentVolume ${name} exists`;
  const endMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
  let failure = 'reading its PersistentVolume took too long';
  for (let call = 1; call <= MAX_CALLS && ports.clock.nowMs() < endMs; call += 1) {
    try {
      await ports.csi.deleteVolume(
        { volumeId: handle, secrets },
        { timeoutMs: ports.timeoutMs, notAfterMs: endMs, gateway: attempt.gateway },
      );
      return undefined;
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      failure = withoutSecrets(error, secrets).message;
    }
  }
  return failure;
}
