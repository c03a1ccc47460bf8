import { isOutage, KubeError } from '../../kube/kube-error.ts';
import { RefusedError } from '../../volumes/refused-error.ts';
import type { SecretRef } from '../../volumes/secret-ref.ts';
import type { ProcessorPorts } from '../ports.ts';
import { readSecretValues, secretChange } from '../secret-values.ts';

/** Values for one DeleteVolume; none where it needs no secret. A driver that is asked without its
 * secret may leave the volume behind and say that it is gone, so a secret that can't be read stops
 * the deletion.
 * @throws RefusedError where the secret is not there (its coming ends the wait), has a value that
 *   is not text (its change ends it) or is withheld; KubeError where the API server is down */
export async function readDeletionSecrets(
  ports: Pick<ProcessorPorts, 'kube'>,
  ref: SecretRef | undefined,
): Promise<Readonly<Record<string, string>>> {
  if (ref === undefined) return {};
  const { name, namespace } = ref;
  let values: Record<string, string> | undefined;
  try {
    values = await readSecretValues(ports, ref);
  } catch (cause) {
    if (!(cause instanceof KubeError) || isOutage(cause)) throw cause;
    throw new RefusedError(
      `error getting secret ${name} in namespace ${namespace}: ${cause.message}`,
      { cause },
    );
  }
  if (values !== undefined) return values;
  throw new RefusedError(
    `secret ${namespace}/${name} of this volume's deletion is not there; create it again`,
    {
      waitsFor: [secretChange(ref, '')],
    },
  );
}
