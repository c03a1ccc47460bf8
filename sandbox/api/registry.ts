import { claims } from './kinds/claims.ts';
import {
  configMaps,
  endpointSlices,
  leases,
  namespaces,
  nodes,
  pods,
  secrets,
  serviceAccounts,
} from './kinds/core.ts';
import { definitions } from './kinds/custom.ts';
import { events } from './kinds/events.ts';
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
  leases,
  endpointSlices,
  csiDrivers,
  csiNodes,
  storageCapacities,
  classes,
  volumeAttachments,
  volumeAttributesClasses,
];

/** The kinds that this server serves. Custom kinds can be added and removed. */
export class Registry {
  readonly #byPath = new Map<string, Resource>();

  constructor() {
    for (const resource of BUILT_IN) this.add(resource);
  }

  add(resource: Resource): void {
    this.#byPath.set(pathOf(resource.group, resource.version, resource.plural), resource);
  }

  remove(resource: Resource): void {
    this.#byPath.delete(pathOf(resource.group, resource.version, resource.plural));
  }

  find(group: string, version: string, plural: string): Resource | undefined {
    return this.#byPath.get(pathOf(group, version, plural));
  }

  all(): readonly Resource[] {
    return [...this.#byPath.values()];
  }
}

function pathOf(group: string, version: string, plural: string): string {
  return `${group}/${version}/${plural}`;
}
