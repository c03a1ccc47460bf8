import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import { RefusedError } from './provisioning-options.ts';
import { quoted } from './quoted.ts';

/** Where a secret is; its values are read at the moment of use. */
export interface SecretRef {
  readonly name: string;
  readonly namespace: string;
}

interface SecretKeys {
  readonly name: string;
  readonly namespace: string;
  readonly deprecatedName?: string;
  readonly deprecatedNamespace?: string;
}

const keysOf = (purpose: string): SecretKeys => ({
  name: `${RESERVED_PARAMETER_PREFIX}${purpose}secret-name`,
  namespace: `${RESERVED_PARAMETER_PREFIX}${purpose}secret-namespace`,
});

const withDeprecated = (purpose: string, word: string): SecretKeys => ({
  ...keysOf(purpose),
  deprecatedName: `csi${word}SecretName`,
  deprecatedNamespace: `csi${word}SecretNamespace`,
});

const DEFAULT_KEYS = keysOf('');

/** What a secret is for; the words are those of the error messages (spec 02 §7.8). */
export type SecretPurpose =
  | 'Provisioner'
  | 'ControllerPublish'
  | 'NodeStage'
  | 'NodePublish'
  | 'ControllerExpand'
  | 'NodeExpand'
  | 'ControllerModify';

const PURPOSE_KEYS: Readonly<Record<SecretPurpose, SecretKeys>> = {
  Provisioner: withDeprecated('provisioner-', 'Provisioner'),
  ControllerPublish: withDeprecated('controller-publish-', 'ControllerPublish'),
  NodeStage: withDeprecated('node-stage-', 'NodeStage'),
  NodePublish: withDeprecated('node-publish-', 'NodePublish'),
  ControllerExpand: keysOf('controller-expand-'),
  NodeExpand: keysOf('node-expand-'),
  ControllerModify: keysOf('controller-modify-'),
};

/** The reserved class parameters that name secrets. */
export const RESERVED_SECRET_KEYS: ReadonlySet<string> = new Set(
  [DEFAULT_KEYS, ...Object.values(PURPOSE_KEYS)].flatMap(({ name, namespace }) => [
    name,
    namespace,
  ]),
);

/** What templates may name. */
export interface SecretContext {
  readonly volumeName: string;
  /** Absent where the claim is unknown, as in a deletion without claimRef. */
  readonly claim?: {
    readonly name: string;
    readonly namespace: string;
    readonly annotations: Readonly<Record<string, string>>;
  };
}

/** The secret that class parameters name for a purpose, or the default one, or none.
 * @throws RefusedError for half a reference, two spellings at once, unknown template variables, an
 *   invalid name */
export function secretRef(
  purpose: SecretPurpose,
  parameters: Readonly<Record<string, string>>,
  context: SecretContext,
): SecretRef | undefined {
  const own = templates(
    purpose,
    PURPOSE_KEYS[purpose],
    parameters,
    'failed to get name and namespace template from params',
  );
  const found =
    own ??
    templates(
      'Default',
      DEFAULT_KEYS,
      parameters,
      'failed to get default name and namespace template from params',
    );
  if (found === undefined) return undefined;

  const common = new Map([['pv.name', context.volumeName]]);
  if (context.claim) common.set('pvc.namespace', context.claim.namespace);
  const namespace = expand(found.namespace, common);
  if (!isLabel(namespace)) throw invalid(found.namespace, namespace, 'namespace name');

  const forName = new Map(common);
  if (context.claim) {
    forName.set('pvc.name', context.claim.name);
    for (const [key, value] of Object.entries(context.claim.annotations))
      forName.set(`pvc.annotations['${key}']`, value);
  }
  const name = expand(found.name, forName);
  if (!isSubdomain(name)) throw invalid(found.name, name, 'secret name');
  return { name, namespace };
}

function templates(
  purpose: string,
  keys: SecretKeys,
  parameters: Readonly<Record<string, string>>,
  wrap: string,
): { name: string; namespace: string } | undefined {
  const read = (key: string | undefined): string | undefined =>
    key !== undefined && Object.hasOwn(parameters, key) ? parameters[key] : undefined;
  const names = [read(keys.deprecatedName), read(keys.name)].filter((value) => value !== undefined);
  const namespaces = [read(keys.deprecatedNamespace), read(keys.namespace)].filter(
    (value) => value !== undefined,
  );
  if (names.length > 1 || namespaces.length > 1) {
    throw new RefusedError(
      `${wrap}: ${purpose} secrets specified in parameters with both "csi" and "csi.storage.k8s.io/" keys`,
    );
  }
  const [name] = names;
  const [namespace] = namespaces;
  if (name === undefined && namespace === undefined) return undefined;
  if (name === undefined || namespace === undefined) {
    throw new RefusedError(
      `${wrap}: either name and namespace for ${purpose} secrets specified, Both must be specified`,
    );
  }
  if (name === '' || namespace === '') {
    throw new RefusedError(
      `${wrap}: ${purpose} secrets specified in parameters but value of either namespace or name is empty`,
    );
  }
  return { name, namespace };
}

/** `${anything}`, an open `${`, `$` and one sign or digit, `$word`. */
const VARIABLE = /\$(?:\{([^}]*)\}|\{|([*#$@!?0-9-])|(\w+))/g;

/** Replaces variables as Go's os.Expand does: `${}` and an open `${` vanish, what follows them and
 * any other `$` stay.
 * @throws RefusedError naming the unknown variables */
function expand(template: string, values: ReadonlyMap<string, string>): string {
  const unknown = new Set<string>();
  const resolved = template.replace(
    VARIABLE,
    (_, braced?: string, sign?: string, word?: string) => {
      const name = braced ?? sign ?? word ?? '';
      if (name === '') return '';
      const value = values.get(name);
      if (value === undefined) unknown.add(name);
      return value ?? '';
    },
  );
  if (unknown.size > 0) {
    const names = [...unknown].sort().map(quoted);
    throw new RefusedError(
      `error resolving value ${quoted(template)}: invalid tokens: [${names.join(' ')}]`,
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

function invalid(template: string, value: string, what: string): RefusedError {
  const given = quoted(template);
  return new RefusedError(
    template === value
      ? `${given} is not a valid ${what}`
      : `${given} resolved to ${quoted(value)} which is not a valid ${what}`,
  );
}
