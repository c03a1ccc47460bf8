import { validatingWebhooks } from './kinds/admission.ts';
import { statefulSets } from './kinds/apps.ts';
import { claims } from './kinds/claims.ts';
import { leases } from './kinds/coordination.ts';
import { configMaps, namespaces, nodes, pods, secrets, serviceAccounts } from './kinds/core.ts';
import { endpointSlices } from './kinds/discovery.ts';
import { events, newEvents } from './kinds/events.ts';
import { definitions } from './kinds/extensions.ts';
import { selfSubjectAccessReviews, selfSubjectReviews } from './kinds/reviews.ts';
import {
  classes,
  csiDrivers,
  csiNodes,
  storageCapacities,
  volumeAttachments,
  volumeAttributesClasses,
} from './kinds/storage.ts';
import { volumes } from './kinds/volumes.ts';
import type { Resource } from './resource.ts';

/** The kinds that exist without a CustomResourceDefinition. */
const BUILT_IN: readonly Resource[] = [
  configMaps,
  events,
  namespaces,
  nodes,
  claims,
  volumes,
  pods,
  secrets,
  serviceAccounts,
  definitions,
  validatingWebhooks,
  selfSubjectReviews,
  selfSubjectAccessReviews,
  statefulSets,
  leases,
  endpointSlices,
  newEvents,
  csiDrivers,
  csiNodes,
  storageCapacities,
  classes,
  volumeAttachments,
  volumeAttributesClasses,
];

/** The kinds that are served. Custom ones can be added and removed. */
export class Registry {
  readonly #byPath = new Map<string, Resource>();
  #revision = 0;

  constructor(resources: readonly Resource[] = BUILT_IN) {
    for (const resource of resources) this.add(resource);
  }

  /** Changes whenever a kind is added or removed; discovery documents are cached by it. */
  get revision(): number {
    return this.#revision;
  }

  add(resource: Resource): void {
    this.#byPath.set(pathOf(resource.group, resource.version, resource.plural), resource);
    this.#revision += 1;
  }

  remove(resource: Resource): void {
    this.#byPath.delete(pathOf(resource.group, resource.version, resource.plural));
    this.#revision += 1;
  }

  find(group: string, version: string, plural: string): Resource | undefined {
    return this.#byPath.get(pathOf(group, version, plural));
  }

  all(): Iterable<Resource> {
    return this.#byPath.values();
  }

  hasGroup(group: string, version?: string): boolean {
    return [...this.all()].some(
      (each) => each.group === group && (version === undefined || each.version === version),
    );
  }
}

function pathOf(group: string, version: string, plural: string): string {
  return `${group}/${version}/${plural}`;
}
