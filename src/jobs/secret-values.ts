import { isUtf8 } from 'node:buffer';
import { redactText } from '../csi/redact.ts';
import { CsiError } from '../csi/status.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Secret } from '../kube/objects.ts';
import { secrets } from '../kube/resources.ts';
import type { WaitCondition } from '../volumes/refused-error.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import type { ProcessorPorts } from './ports.ts';

/* The secret values of one driver call. They are read right before the call and never stored or
 * logged (invariant 12). */

/** A secret's values by key. */
export type SecretValues = Readonly<Record<string, string>>;

/** Why a call can't get its secret. */
export interface SecretProblem {
  /** `missing`: the secret is not there. `not-text`: a value is not UTF-8. `unreadable`: the API
   * server refused or did not answer. */
  readonly kind: 'missing' | 'not-text' | 'unreadable';
  readonly ref: SecretRef;
  /** For the user, without values; of `missing` and `unreadable` in upstream's words. */
  readonly message: string;
  /** The change of the secret that ends the problem; none if it is unreadable. */
  readonly waitsFor: readonly WaitCondition[];
  /** Only if it is unreadable. */
  readonly error?: KubeError;
}

/** Reads the values of a secret for one call; without a reference there are none. */
export async function readSecretValues(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  ref: SecretRef | undefined,
): Promise<{ readonly kind: 'values'; readonly values: SecretValues } | SecretProblem> {
  if (ref === undefined) return { kind: 'values', values: {} };
  // external-provisioner pkg/controller/controller.go getCredentials
  const words = `error getting secret ${ref.name} in namespace ${ref.namespace}`;
  let secret: Secret | undefined;
  try {
    secret = await kube.get<Secret>(secrets, ref);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    return { kind: 'unreadable', ref, message: `${words}: ${error.message}`, waitsFor: [], error };
  }
  if (secret === undefined) {
    const message = `${words}: secrets "${ref.name}" not found`;
    return { kind: 'missing', ref, message, waitsFor: [untilChanged(ref, '')] };
  }
  const values = Object.entries(secret.data ?? {}).map(
    ([key, value]) => [key, Buffer.from(value, 'base64')] as const,
  );
  const notText = values.filter(([, bytes]) => !isUtf8(bytes)).map(([key]) => key);
  if (notText.length > 0) {
    const waitsFor = [untilChanged(ref, secret.metadata.resourceVersion)];
    return { kind: 'not-text', ref, message: notTextMessage(ref, notText), waitsFor };
  }
  return {
    kind: 'values',
    values: Object.fromEntries(values.map(([key, bytes]) => [key, bytes.toString('utf8')])),
  };
}

/** CSI's secrets are protobuf strings: other bytes would arrive changed, and the driver would get a
 * password that is not the user's. */
function notTextMessage({ namespace, name }: SecretRef, keys: readonly string[]): string {
  return (
    `secret ${namespace}/${name} can't be sent to the driver: ` +
    `the value of ${keys.join(', ')} is not UTF-8 text, and CSI carries nothing else; ` +
    "store it as text in the way that the driver's manual says, " +
    "for example in base64 on top of Kubernetes' own"
  );
}

function untilChanged({ namespace, name }: SecretRef, seen: string): WaitCondition {
  return { resource: secrets.plural, namespace, name, seen };
}

/** The error without secret values. Some drivers quote what they were given, and their messages go
 * into events, logs and Redis. */
export function withoutSecrets(error: CsiError, values: SecretValues): CsiError {
  const details = redactText(error.details, Object.values(values));
  if (details === error.details) return error;
  const { code, method, driverSaid, notForwarded } = error;
  return new CsiError({ code, method, driverSaid, notForwarded, details });
}
