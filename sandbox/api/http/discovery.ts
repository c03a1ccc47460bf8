import type { JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import { apiVersionOf, type Resource } from '../resource.ts';

const VERBS = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch'];

/** The discovery document at a path: the kinds that this server serves. Clients read them first.
 * @returns undefined for other paths */
export function discoveryAt(path: string, registry: Registry): JsonObject | undefined {
  const [root, ...parts] = path.split('/').filter((part) => part !== '');
  if (root !== 'api' && root !== 'apis') return undefined;
  const [group = '', version, ...more] = root === 'api' ? ['', ...parts] : parts;
  if (more.length > 0) return undefined;
  const kinds = registry.all().filter((each) => each.group === group);
  if (version !== undefined) return resourceList(kinds.filter((each) => each.version === version));
  if (root === 'api') return { kind: 'APIVersions', versions: ['v1'] };
  if (group !== '') return kinds.length === 0 ? undefined : { ...groupOf(kinds), ...API_GROUP };
  const groups = new Set(registry.all().map((each) => each.group));
  groups.delete('');
  return {
    kind: 'APIGroupList',
    apiVersion: 'v1',
    groups: [...groups].map((name) =>
      groupOf(registry.all().filter((each) => each.group === name)),
    ),
  };
}

const API_GROUP = { kind: 'APIGroup', apiVersion: 'v1' };

function groupOf(kinds: readonly Resource[]): JsonObject {
  const versions = [...new Set(kinds.map((each) => each.version))].map((version) => ({
    groupVersion: `${kinds[0]?.group}/${version}`,
    version,
  }));
  return { name: kinds[0]?.group, versions, preferredVersion: versions[0] };
}

function resourceList(kinds: readonly Resource[]): JsonObject | undefined {
  const [first] = kinds;
  if (first === undefined) return undefined;
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: apiVersionOf(first),
    resources: kinds.flatMap((each) => {
      const { plural: name, singular: singularName, namespaced, kind, shortNames } = each;
      const entry = { name, singularName, namespaced, kind };
      const main = { ...entry, verbs: VERBS, shortNames: [...shortNames] };
      const status = { ...entry, name: `${name}/status`, verbs: ['get', 'patch', 'update'] };
      return each.hasStatus === true ? [main, status] : [main];
    }),
  };
}

/** `/version`: the API version that this server speaks. The suffix tells it from a real cluster. */
export const VERSION: JsonObject = {
  major: '1',
  minor: '36',
  gitVersion: 'v1.36.0-sutler-sandbox',
  platform: 'node',
};
