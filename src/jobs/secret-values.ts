import { isUtf8 } from 'node:buffer';
import { isForbidden, KubeError } from '../kube/kube-error.ts';
import type { Secret } from '../kube/objects.ts';
import { secrets } from '../kube/resources.ts';
import type { WaitCondition } from '../rules/rule.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import type { Kube } from './dependencies.ts';

/* The secret values of one driver call. They are read right before the call and never stored or
 * logged (invariant 11). */

/** A secret's values by key. */
export type SecretValues = Readonly<Record<string, string>>;

/** Why a call can't get its secret. */
export interface SecretProblem {
  /** `missing`: the secret does not exist. `not-text`: a value is not UTF-8. `unreadable`: the API
   * server refused or did not answer. */
  readonly kind: 'missing' | 'not-text' | 'unreadable';
  readonly ref: SecretRef;
  /** For the user, without values; upstream's text for `missing` and `unreadable`. */
  readonly message: string;
  /** The change of the secret that ends the problem; empty if it is unreadable. */
  readonly waitsFor: readonly WaitCondition[];
  /** Only if it is unreadable. */
  readonly error?: KubeError;
}

/** The API server's own text names the account, the verb, the secret and its namespace. */
const NOT_GRANTED =
  '; by default sutler may read no secrets: in the namespace of the secret, bind that account ' +
  'to a Role that may get the secret (k8s/secrets-by-name)';

/** Reads the values of a secret for one call; without a reference there are none. */
export async function readSecretValues(
  kube: Kube,
  ref: SecretRef | undefined,
): Promise<{ readonly kind: 'values'; readonly values: SecretValues } | SecretProblem> {
  if (ref === undefined) return { kind: 'values', values: {} };
  const { name, namespace } = ref;
  // external-provisioner pkg/controller/controller.go getCredentials
  const prefix = `error getting secret ${name} in namespace ${namespace}`;
  let secret: Secret | undefined;
  try {
    secret = await kube.get<Secret>(secrets, ref);
  } catch (error) {
    if (!(error instanceof KubeError)) throw error;
    const message = `${prefix}: ${error.message}${isForbidden(error) ? NOT_GRANTED : ''}`;
    return { kind: 'unreadable', ref, message, waitsFor: [], error };
  }
  const seen = secret?.metadata.resourceVersion ?? '';
  const waitsFor = [{ resource: secrets.plural, namespace, name, seen }];
  if (secret === undefined)
    return { kind: 'missing', ref, message: `${prefix}: secrets "${name}" not found`, waitsFor };
  const entries = Object.entries(secret.data ?? {}).map(
    ([key, value]) => [key, Buffer.from(value, 'base64')] as const,
  );
  const notText = entries.filter(([, bytes]) => !isUtf8(bytes)).map(([key]) => key);
  if (notText.length === 0) {
    const values = Object.fromEntries(entries.map(([key, bytes]) => [key, bytes.toString('utf8')]));
    return { kind: 'values', values };
  }
  // CSI's secrets are protobuf strings: other bytes would arrive changed, and the driver would get
  // a password that is not the user's.
  const message =
    `secret ${namespace}/${name} can't be sent to the driver: ` +
    `the value of ${notText.join(', ')} is not UTF-8 text, and CSI carries nothing else; ` +
    "store it as text in the way that the driver's manual says, " +
    "for example in base64 on top of Kubernetes' own";
  return { kind: 'not-text', ref, message, waitsFor };
}
