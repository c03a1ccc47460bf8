import { redactText } from '../csi/redact.ts';
import { CsiError } from '../csi/status.ts';
import { secrets } from '../kube/resources.ts';
import type { Secret } from '../kube/objects.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import type { ProcessorPorts } from './ports.ts';

/** A secret's values for one call: never stored, never logged.
 * @returns undefined when the secret is not there
 * @throws KubeError when it can't be read */
export async function readSecretValues(ports: Pick<ProcessorPorts, 'kube'>, ref: SecretRef): Promise<Record<string, string> | undefined> {
  const secret = await ports.kube.get<Secret>(secrets, ref);
  if (secret === undefined) return undefined;
  return Object.fromEntries(Object.entries(secret.data ?? {}).map(([key, value]) => [key, Buffer.from(value, 'base64').toString('utf8')]));
}

/** Thrown where a secret that a call needs is not there. */
export class SecretMissing extends Error {
  override readonly name = 'SecretMissing';
  readonly ref: SecretRef;

  constructor(ref: SecretRef, message: string) {
    super(message);
    this.ref = ref;
  }
}

/** The outcome of a creation whose secret is not there: parked where ingest watches for it, else tried again like any failure, since the wait for the next
 * try would be long. */
export function waitForSecret(ports: Pick<ProcessorPorts, 'areSecretsWatched'>, error: SecretMissing): Outcome {
  const { message: reason, ref } = error;
  if (!ports.areSecretsWatched) return { kind: 'retry', reason, error };
  return { kind: 'parked', reason, until: { resource: secrets.plural, namespace: ref.namespace, name: ref.name, seen: '' } };
}

/** The error without secret values: some drivers quote what they were given, and their words go into events, logs and Redis. */
export function withoutSecrets(error: CsiError, values: readonly string[]): CsiError {
  const details = redactText(error.details, values);
  return details === error.details
    ? error
    : new CsiError({ code: error.code, method: error.method, driverSaid: error.driverSaid, notForwarded: error.notForwarded, details });
}
