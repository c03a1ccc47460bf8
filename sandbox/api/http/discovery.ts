import type { JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import { apiVersionOf, type Resource } from '../resource.ts';
import type { Verb } from './request-info.ts';

const VERBS: Verb[] = [
  'create',
  'delete',
  'deletecollection',
  'get',
  'list',
  'patch',
  'update',
  'watch',
];
const STATUS_VERBS = ['get', 'patch', 'update'];

/** The media type for aggregated discovery (one document with all kinds), if the client accepts it.
 */
export function aggregatedType(accept: string): string | undefined {
  const match =
    /application\/json;g=apidiscovery\.k8s\.io;v=(v2|v2beta1);as=APIGroupDiscoveryList/.exec(
      accept.replaceAll(' ', ''),
    );
  return match?.[0];
}

/** The discovery documents: the kinds that this server serves. Clients read them first. */
export class Discovery {
  readonly #registry: Registry;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** The document at a path; undefined for other paths.
   * @param aggregated  the media type from {@link aggregatedType} */
  document(path: string, aggregated: string | undefined): JsonObject | undefined {
    const [root, group, version, ...more] = path.split('/').filter((part) => part !== '');
    if (more.length > 0) return undefined;
    if (root === 'api') {
      if (group === undefined)
        return aggregated === undefined ? coreVersions() : this.#aggregated([''], aggregated);
      return version === undefined ? this.#resources('', group) : undefined;
    }
    if (root !== 'apis') return undefined;
    if (group === undefined)
      return aggregated === undefined
        ? this.#groupList()
        : this.#aggregated(this.#groups(), aggregated);
    if (!this.#registry.hasGroup(group)) return undefined;
    return version === undefined
      ? { kind: 'APIGroup', apiVersion: 'v1', ...this.#group(group) }
      : this.#resources(group, version);
  }

  #rows(group: string, version?: string): Resource[] {
    return [...this.#registry.all()]
      .filter((each) => each.group === group && (version === undefined || each.version === version))
      .sort((a, b) => a.plural.localeCompare(b.plural));
  }

  #groups(): string[] {
    return [...new Set([...this.#registry.all()].map((each) => each.group))].filter(
      (group) => group !== '',
    );
  }

  /** Newest first: v1 before v1beta1 before v1alpha1. */
  #versions(group: string): string[] {
    return [...new Set(this.#rows(group).map((each) => each.version))].sort(
      (a, b) => rankOf(b) - rankOf(a),
    );
  }

  #group(group: string): JsonObject {
    const versions = this.#versions(group).map((version) => ({
      groupVersion: `${group}/${version}`,
      version,
    }));
    return { name: group, versions, preferredVersion: versions[0] };
  }

  #groupList(): JsonObject {
    return {
      kind: 'APIGroupList',
      apiVersion: 'v1',
      groups: this.#groups().map((group) => this.#group(group)),
    };
  }

  #resources(group: string, version: string): JsonObject | undefined {
    const rows = this.#rows(group, version);
    const [first] = rows;
    if (first === undefined) return undefined;
    return {
      kind: 'APIResourceList',
      apiVersion: 'v1',
      groupVersion: apiVersionOf(first),
      resources: rows.flatMap(resourceEntries),
    };
  }

  #aggregated(groups: readonly string[], type: string): JsonObject {
    return {
      kind: 'APIGroupDiscoveryList',
      apiVersion: `apidiscovery.k8s.io/${type.includes('v=v2;') ? 'v2' : 'v2beta1'}`,
      metadata: {},
      items: groups.map((group) => ({
        metadata: group === '' ? {} : { name: group },
        versions: this.#versions(group).map((version) => ({
          version,
          resources: this.#rows(group, version).map(aggregatedEntry),
          freshness: 'Current',
        })),
      })),
    };
  }
}

function coreVersions(): JsonObject {
  return {
    kind: 'APIVersions',
    versions: ['v1'],
    serverAddressByClientCIDRs: [{ clientCIDR: '0.0.0.0/0', serverAddress: '127.0.0.1' }],
  };
}

function rankOf(version: string): number {
  const match = /^v(\d+)(?:(alpha|beta)(\d+))?$/.exec(version);
  if (match === null) return -1;
  const [, major = '0', stage, minor = '0'] = match;
  return (
    (stage === undefined ? 1_000_000 : stage === 'beta' ? 500_000 : 0) +
    Number(major) * 1000 +
    Number(minor)
  );
}

/** The verbs that a resource serves. */
export function verbsOf(row: Resource): Verb[] {
  if (row.review !== undefined) return ['create'];
  return row.deletedOneByOne === true ? VERBS.filter((verb) => verb !== 'deletecollection') : VERBS;
}

function resourceEntries(row: Resource): JsonObject[] {
  const entry: JsonObject = {
    name: row.plural,
    singularName: row.singular,
    namespaced: row.namespaced,
    kind: row.kind,
    verbs: verbsOf(row),
    ...aliasesOf(row),
  };
  if (row.hasStatus !== true) return [entry];
  return [
    entry,
    {
      name: `${row.plural}/status`,
      singularName: '',
      namespaced: row.namespaced,
      kind: row.kind,
      verbs: STATUS_VERBS,
    },
  ];
}

function aliasesOf({ shortNames = [], categories = [] }: Resource): JsonObject {
  return {
    ...(shortNames.length === 0 ? {} : { shortNames: [...shortNames] }),
    ...(categories.length === 0 ? {} : { categories: [...categories] }),
  };
}

function aggregatedEntry(row: Resource): JsonObject {
  const responseKind = { group: row.group, version: row.version, kind: row.kind };
  return {
    resource: row.plural,
    responseKind,
    scope: row.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: row.singular,
    verbs: verbsOf(row),
    ...aliasesOf(row),
    ...(row.hasStatus === true
      ? { subresources: [{ subresource: 'status', responseKind, verbs: STATUS_VERBS }] }
      : {}),
  };
}

/** `/version`: the API version that this server speaks. The suffix tells it from a real cluster. */
export const VERSION: JsonObject = {
  major: '1',
  minor: '36',
  gitVersion: 'v1.36.0-sutler-sandbox',
  gitCommit: '',
  gitTreeState: '',
  buildDate: '1970-01-01T00:00:00Z',
  goVersion: '',
  compiler: '',
  platform: 'node',
};
