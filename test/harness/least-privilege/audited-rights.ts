import { at, listAt, textAt } from '../../conformance/connection.ts';
import type { ManifestObject } from '../real-manifests.ts';

/* Rights as text: `ACCOUNT by BINDING: VERB GROUP/RESOURCE`. */

/** What bindings grant to service accounts. */
export function grantedRights(objects: readonly ManifestObject[]): ReadonlySet<string> {
  const rights = objects
    .filter(({ kind }) => kind.endsWith('RoleBinding'))
    .flatMap((binding) => {
      const { namespace } = binding.metadata;
      const role = objects.find(
        ({ kind, metadata }) =>
          kind === textAt(binding, 'roleRef', 'kind') &&
          metadata.name === textAt(binding, 'roleRef', 'name') &&
          metadata.namespace === namespace,
      );
      const suffix = namespace === undefined ? '' : `/${namespace}`;
      const rules = listAt(role, 'rules').flatMap(rightsIn);
      return listAt(binding, 'subjects').flatMap((subject) =>
        rules.map(
          (right) => `${textAt(subject, 'name')} by ${binding.metadata.name}${suffix}: ${right}`,
        ),
      );
    });
  return new Set(rights);
}

function rightsIn(rule: unknown): readonly string[] {
  return listAt(rule, 'verbs').flatMap((verb) =>
    listAt(rule, 'apiGroups').flatMap((group) =>
      listAt(rule, 'resources').map(
        (resource) => `${String(verb)} ${String(group)}/${String(resource)}`,
      ),
    ),
  );
}

/** What kube-apiserver answered to service accounts. */
export interface Audited {
  /** The rights by which it allowed a request. */
  readonly used: ReadonlySet<string>;
  /** Its refusals of requests that no right allows. */
  readonly refused: ReadonlySet<string>;
}

const REASON = /by (?:Cluster)?RoleBinding "([^"]+)" .* to ServiceAccount "([^/]+)\//;

/** Reads an audit log, without a line that is still being written. */
export function readAuditLog(text: string): Audited {
  const [used, refused] = [new Set<string>(), new Set<string>()];
  for (const line of text.split('\n').slice(0, -1)) {
    const event: unknown = JSON.parse(line);
    const request =
      `${textAt(event, 'verb')} ` +
      `${textOf(event, 'apiGroup')}/${textOf(event, 'resource')}${subresourceOf(event)}`;
    const reason = at(event, 'annotations', 'authorization.k8s.io/reason');
    const [, binding, account] = REASON.exec(typeof reason === 'string' ? reason : '') ?? [];
    if (binding !== undefined) used.add(`${account} by ${binding}: ${request}`);
    if (at(event, 'annotations', 'authorization.k8s.io/decision') !== 'allow')
      refused.add(`${textAt(event, 'user', 'username')}: ${request} ${textOf(event, 'namespace')}`);
  }
  return { used, refused };
}

function textOf(event: unknown, field: string): string {
  const value = at(event, 'objectRef', field);
  return typeof value === 'string' ? value : '';
}

function subresourceOf(event: unknown): string {
  const subresource = textOf(event, 'subresource');
  return subresource === '' ? '' : `/${subresource}`;
}
