import { isUtf8 } from 'node:buffer';
import { redactText } from '../csi/redact.ts';
import { CsiError } from '../csi/status.ts';
import { secrets } from '../kube/resources.ts';
import type { Secret } from '../kube/objects.ts';
import type { Outcome } from '../queue/outcome.ts';
import { RefusedError, type WaitCondition } from '../volumes/refused-error.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import type { ProcessorPorts } from './ports.ts';

/** A secret's values for one call: never stored, never logged.
 * @returns undefined when the secret is not there
 * @throws RefusedError when a value is not text, until the secret changes; KubeError when it can't
 *   be read */
export async function readSecretValues(
  ports: Pick<ProcessorPorts, 'kube'>,
  ref: SecretRef,
): Promise<Record<string, string> | undefined> {
  const secret = await ports.kube.get<Secret>(secrets, ref);
  if (secret === undefined) return undefined;
  const values = Object.entries(secret.data ?? {}).map(
    ([key, value]) => [key, Buffer.from(value, 'base64')] as const,
  );
  const notText = values.filter(([, bytes]) => !isUtf8(bytes)).map(([key]) => key);
  if (notText.length > 0)
    throw unsendable(ref, { keys: notText, seen: secret.metadata.resourceVersion });
  return Object.fromEntries(values.map(([key, bytes]) => [key, bytes.toString('utf8')]));
}

/** CSI's secrets are protobuf strings. Other bytes would arrive changed, and a driver would be
 * asked with a password that is not the user's. */
function unsendable(
  ref: SecretRef,
  { keys, seen }: { readonly keys: readonly string[]; readonly seen: string },
): RefusedError {
  const what = `secret ${ref.namespace}/${ref.name} can't be sent to the driver: the value of ${keys.join(', ')} is not UTF-8 text, and CSI carries nothing else`;
  const remedy =
    "store it as text in the way that the driver's manual says, for example in base64 on top of Kubernetes' own";
  return new RefusedError(`${what}; ${remedy}`, { waitsFor: [secretChange(ref, seen)] });
}

/** The change of a secret that ends a wait.
 * @param seen its version; '' = it is not there */
export function secretChange({ namespace, name }: SecretRef, seen: string): WaitCondition {
  return { resource: secrets.plural, namespace, name, seen };
}

/** The outcome of a creation whose secret is not there, or can't be sent: parked where ingest
 * watches for it, else tried again like any failure, since the wait for the next try would be long.
 */
export function waitForSecret(
  ports: Pick<ProcessorPorts, 'areSecretsWatched'>,
  error: RefusedError,
): Outcome {
  const { message: reason, waitsFor: until } = error;
  return ports.areSecretsWatched
    ? { kind: 'parked', reason, until }
    : { kind: 'retry', reason, error };
}

/** The error without secret values: some drivers quote what they were given, and their words go
 * into events, logs and Redis. */
export function withoutSecrets(error: CsiError, values: readonly string[]): CsiError {
  const details = redactText(error.details, values);
  return details === error.details
    ? error
    : new CsiError({
        code: error.code,
        method: error.method,
        driverSaid: error.driverSaid,
        notForwarded: error.notForwarded,
        details,
      });
}
