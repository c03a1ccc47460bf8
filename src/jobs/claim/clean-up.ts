import { CsiError } from '../../csi/status.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { MAX_READ_AGE_MS } from '../attempt.ts';
import type { ProcessorPorts } from '../ports.ts';
import type { SecretValues } from '../secret-values.ts';
import type { OpenCreation } from './creation.ts';

const MAX_CALLS = 5;

/** Deletes a volume that the driver has just created and that no PV can be made of: only after the
 * first answer of its record, and only if no PV has its name (invariant 7).
 * @param secrets the values that CreateVolume got
 * @returns why the volume may still exist; undefined if it is deleted
 * @throws KubeError if the PV can't be read */
export async function cleanUpVolume(
  ports: ProcessorPorts,
  { attempt, run, stored }: OpenCreation,
  handle: string,
  secrets: SecretValues,
): Promise<string | undefined> {
  const { name } = stored.pvTemplate.volume.metadata;
  const { timeoutMs } = ports;
  const readMs = ports.clock.nowMs();
  if ((await ports.kube.get<Volume>(volumes, { name })) !== undefined)
    return `PersistentVolume ${name} exists`;
  const notAfterMs = Math.min(attempt.notAfterMs, readMs + MAX_READ_AGE_MS);
  let failure = 'reading its PersistentVolume took too long';
  for (let call = 1; call <= MAX_CALLS && ports.clock.nowMs() < notAfterMs; call += 1) {
    try {
      await ports.csi.deleteVolume(
        { volumeId: handle, secrets },
        { timeoutMs, notAfterMs, gateway: stored.endpoint, stopping: run.signal },
      );
      return undefined;
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      failure = error.message;
    }
  }
  return failure;
}
