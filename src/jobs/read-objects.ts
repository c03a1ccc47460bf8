import { isUtf8 } from 'node:buffer';
import { isForbidden, isOutage, KubeError } from '../kube/kube-error.ts';
import type { KubeObject, Secret } from '../kube/objects.ts';
import { referenceGrants, type Resource, secrets } from '../kube/resources.ts';
import type { Answer, Rule, Step, WaitCondition } from '../rules/rule.ts';
import type { SecretRef } from '../volumes/secret-ref.ts';
import type { Kube } from './dependencies.ts';
import { addFinalizer } from './finalizers.ts';

/* What runs read from the API server: what a rule asks for, and secrets. */

/** Runs a rule of src/volumes/ to its end: performs each step at the API server and resumes the
 * rule with the answer. A refusal is an answer too.
 * @throws KubeError if the API server is down */
export async function runRule<T>(kube: Kube, rule: Rule<T>): Promise<T> {
  let next = rule.next();
  while (next.done !== true) next = rule.next(await performStep(kube, next.value));
  return next.value;
}

async function performStep(kube: Kube, step: Step): Promise<Answer> {
  try {
    switch (step.kind) {
      case 'read': {
        const object = await kube.get<KubeObject>(step.resource, step.ref);
        return object === undefined ? { kind: 'absent' } : { kind: 'found', object };
      }
      case 'list':
        return { kind: 'listed', items: await listAll(kube, step.resource, step.namespace) };
      case 'add-finalizer':
        await addFinalizer(kube, step);
        return { kind: 'finalizer-added' };
    }
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    // The server answers 404 for a kind that it does not know, since its CRD is not installed.
    if (error.code === 404 && step.kind === 'read') return { kind: 'absent', isUnknownKind: true };
    return { kind: 'refused', code: error.code, message: error.serverMessage };
  }
}

/** The versions in which a server may serve ReferenceGrants; what we read is the same in both. */
const GRANT_VERSIONS = ['v1', 'v1beta1'];

/** Lists a namespace. A kind that the server does not know has no objects. */
async function listAll(
  kube: Kube,
  resource: Resource,
  namespace: string,
): Promise<readonly KubeObject[]> {
  const isGrants = resource.plural === referenceGrants.plural;
  for (const version of isGrants ? GRANT_VERSIONS : [resource.version]) {
    try {
      return (await kube.list<KubeObject>({ ...resource, version }, { namespace })).items;
    } catch (error) {
      if (!(error instanceof KubeError) || error.code !== 404) throw error;
    }
  }
  return [];
}

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
  '; sutler is given no secrets by default: bind that account to a Role in the namespace of the ' +
  'secret that may get it (k8s/secrets-by-name)';

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
