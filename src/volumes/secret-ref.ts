import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import { quote } from '../rules/quote.ts';
import { RefusedError } from '../rules/rule.ts';
import { omitUnset } from '../runtime/json.ts';

/** A reference to a secret. Its values are read just before each call (invariant 11). */
export interface SecretRef {
  readonly name: string;
  readonly namespace: string;
}

/** The class parameters that name a secret: the current key first, then the deprecated one. */
function keysOf(purpose: string, ...deprecated: string[]) {
  const prefix = `${RESERVED_PARAMETER_PREFIX}${purpose}`;
  return {
    names: [`${prefix}secret-name`, ...deprecated.map((word) => `csi${word}SecretName`)],
    namespaces: [
      `${prefix}secret-namespace`,
      ...deprecated.map((word) => `csi${word}SecretNamespace`),
    ],
  };
}

const DEFAULT_KEYS = keysOf('');

/** The keys of each purpose, which is spelled as in upstream's messages. Provisioner is first since
 * its refusal comes first. */
const PURPOSE_KEYS = {
  Provisioner: keysOf('provisioner-', 'Provisioner'),
  ControllerPublish: keysOf('controller-publish-', 'ControllerPublish'),
  NodeStage: keysOf('node-stage-', 'NodeStage'),
  NodePublish: keysOf('node-publish-', 'NodePublish'),
  ControllerExpand: keysOf('controller-expand-'),
  NodeExpand: keysOf('node-expand-'),
  ControllerModify: keysOf('controller-modify-'),
};

/** What a secret is for. */
export type SecretPurpose = keyof typeof PURPOSE_KEYS;

/** The secret of each purpose that has one. */
export type SecretRefs = Readonly<Partial<Record<SecretPurpose, SecretRef>>>;

/** Every class parameter that names a secret. */
export const SECRET_KEYS: ReadonlySet<string> = new Set(
  [DEFAULT_KEYS, ...Object.values(PURPOSE_KEYS)].flatMap((keys) => Object.values(keys).flat()),
);

/** The values for the variables of templates. */
export interface SecretContext {
  readonly volumeName: string;
  /** Absent if the claim is unknown, as in a deletion without claimRef. */
  readonly claim?: {
    readonly name: string;
    readonly namespace: string;
    readonly annotations: Readonly<Record<string, string>>;
  };
}

/** The secret that the class parameters name for a purpose, else their default secret, else none.
 * Upstream: external-provisioner pkg/controller/controller.go getSecretReference.
 * @throws RefusedError for half a reference, two spellings of one key, a template that is too long,
 *   unknown template variables, and an invalid name */
export function secretRef(
  purpose: SecretPurpose,
  parameters: Readonly<Record<string, string>>,
  context: SecretContext,
): SecretRef | undefined {
  const templates =
    findTemplates(purpose, PURPOSE_KEYS[purpose], parameters) ??
    findTemplates('Default', DEFAULT_KEYS, parameters);
  if (templates === undefined) return undefined;
  const { volumeName, claim } = context;

  const values = new Map([['pv.name', volumeName]]);
  if (claim) values.set('pvc.namespace', claim.namespace);
  const namespace = expand(templates.namespace, values);
  if (!isLabel(namespace)) throw refuseName(templates.namespace, namespace, 'namespace name');

  // Only the name may depend on the claim's name and annotations.
  if (claim) {
    values.set('pvc.name', claim.name);
    for (const [key, value] of Object.entries(claim.annotations))
      values.set(`pvc.annotations['${key}']`, value);
  }
  const name = expand(templates.name, values);
  if (!isSubdomain(name)) throw refuseName(templates.name, name, 'secret name');
  return { name, namespace };
}

/** The secrets that the class parameters name for all purposes.
 * @throws RefusedError as secretRef */
export function secretRefs(
  parameters: Readonly<Record<string, string>>,
  context: SecretContext,
): SecretRefs {
  // Most classes name none.
  if (!Object.keys(parameters).some((key) => SECRET_KEYS.has(key))) return {};
  const purposes = Object.keys(PURPOSE_KEYS) as SecretPurpose[];
  const refs = purposes.map((purpose) => [purpose, secretRef(purpose, parameters, context)]);
  return omitUnset(Object.fromEntries(refs) as SecretRefs);
}

/** A template resolves to at most 253 characters, and the variable of an annotation has at most
 * 340. Class parameters may have 256 KiB (Kubernetes pkg/apis/storage/validation), and upstream has
 * no limit. Expanding takes quadratic time at worst. */
const MAX_TEMPLATE_LENGTH = 4096;

/** Upstream: verifyAndGetSecretNameAndNamespaceTemplate.
 * @throws RefusedError also for a template that is too long */
function findTemplates(
  purpose: SecretPurpose | 'Default',
  keys: typeof DEFAULT_KEYS,
  parameters: Readonly<Record<string, string>>,
): SecretRef | undefined {
  const refuse = (why: string): RefusedError => {
    const which = purpose === 'Default' ? 'default name' : 'name';
    return new RefusedError(`failed to get ${which} and namespace template from params: ${why}`);
  };
  const read = (spellings: readonly string[]): readonly string[] =>
    spellings.flatMap((key) => {
      const value = parameters[key] ?? '';
      if (value.length > MAX_TEMPLATE_LENGTH)
        throw refuse(
          `the parameter ${key} has ${value.length} characters; ` +
            `a template may have ${MAX_TEMPLATE_LENGTH} at most`,
        );
      return parameters[key] === undefined ? [] : [value];
    });
  const names = read(keys.names);
  const namespaces = read(keys.namespaces);
  if (names.length > 1 || namespaces.length > 1)
    throw refuse(
      `${purpose} secrets specified in parameters with both "csi" and "csi.storage.k8s.io/" keys`,
    );
  const [name] = names;
  const [namespace] = namespaces;
  if (name === undefined && namespace === undefined) return undefined;
  if (name === undefined || namespace === undefined)
    throw refuse(
      `either name and namespace for ${purpose} secrets specified, Both must be specified`,
    );
  if (name === '' || namespace === '') {
    const which = `${purpose} secrets specified in parameters`;
    throw refuse(`${which} but value of either namespace or name is empty`);
  }
  return { name, namespace };
}

/** `${anything}`, an unclosed `${`, `$` with one sign or digit, `$word`. */
const VARIABLE = /\$(?:\{([^}]*)\}|\{|([*#$@!?0-9-])|(\w+))/g;

/** Replaces variables as Go's os.Expand does: `${}` and an unclosed `${` vanish, what follows them
 * and any other `$` stay. Upstream: resolveTemplate.
 * @throws RefusedError that names the unknown variables */
function expand(template: string, values: ReadonlyMap<string, string>): string {
  const unknown = new Set<string>();
  const resolve = (name: string | undefined): string => {
    if (name === undefined || name === '') return '';
    const value = values.get(name);
    if (value === undefined) unknown.add(name);
    return value ?? '';
  };
  const resolved = template.replace(VARIABLE, (_, braced?: string, sign?: string, word?: string) =>
    resolve(braced ?? sign ?? word),
  );
  if (unknown.size > 0) {
    const names = [...unknown].sort().map(quote);
    throw new RefusedError(
      `error resolving value ${quote(template)}: invalid tokens: [${names.join(' ')}]`,
    );
  }
  return resolved;
}

function isLabel(text: string): boolean {
  return text.length <= 63 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(text);
}

function isSubdomain(text: string): boolean {
  return (
    text.length <= 253 &&
    /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(text)
  );
}

function refuseName(template: string, value: string, what: string): RefusedError {
  const given = quote(template);
  return new RefusedError(
    template === value
      ? `${given} is not a valid ${what}`
      : `${given} resolved to ${quote(value)} which is not a valid ${what}`,
  );
}
