import { randomInt, randomUUID } from 'node:crypto';
import {
  alreadyExists,
  ApiError,
  badRequest,
  conflict,
  forbidden,
  invalid,
  notFound,
} from './api-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  objectAt,
  textAt,
  type Json,
  type JsonObject,
} from './json-value.ts';
import { keyOf, type KubeObject, type Metadata } from './kube-object.ts';
import { namespaces } from './kinds/core.ts';
import { customKinds, definitions } from './kinds/custom.ts';
import { listPage, type ListPage, type ListQuery } from './list-query.ts';
import { subdomainComplaint } from './names.ts';
import { applyPatch, type PatchType } from './patch/patch.ts';
import type { Registry } from './registry.ts';
import { apiVersionOf, type Resource, type RuleContext } from './resource.ts';
import { Stored, type Store } from './store.ts';
import { timestamp } from './time.ts';

/** Identifies an object: resource, namespace (undefined for cluster-scoped kinds) and name. */
export interface Place {
  readonly resource: Resource;
  readonly namespace?: string | undefined;
  readonly name: string;
}

export interface WriteOptions {
  readonly dryRun?: boolean;
  readonly subresource?: 'status' | undefined;
}

export interface DeleteRequest {
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
  readonly dryRun?: boolean;
}

export interface Written {
  readonly stored: Stored;
  readonly created: boolean;
}

export interface Deleted {
  readonly stored: Stored;
  /** False while finalizers keep the object. */
  readonly gone: boolean;
}

/** The API's operations without HTTP. Each throws ApiError if it refuses. */
export class Operations {
  readonly registry: Registry;
  readonly store: Store;
  readonly #nowMs: () => number;

  constructor(registry: Registry, store: Store, nowMs: () => number) {
    this.registry = registry;
    this.store = store;
    this.#nowMs = nowMs;
  }

  /** The stored object.
   * @throws ApiError 404 */
  get(place: Place): Stored {
    const found = this.#found(place);
    if (found === undefined) throw notFound(place.resource, place.name);
    return found;
  }

  list(resource: Resource, query: ListQuery): ListPage {
    return listPage(this.store, this.store.collection(resource), query);
  }

  create(
    resource: Resource,
    namespace: string | undefined,
    raw: JsonObject,
    { dryRun = false }: WriteOptions = {},
  ): Stored {
    const metadata = newMetadata(namespace, objectAt(raw, 'metadata'), this.#nowMs());
    const { name } = metadata;
    if (namespace !== undefined) this.#checkNamespaceAccepts(resource, namespace, name);
    const object = objectOf(resource, cloneJson(raw), metadata);
    resource.applyDefaults?.(object);
    resource.beforeCreate?.(object, this.#context);
    checkObject(resource, object);
    const existing = this.#found({ resource, namespace, name });
    if (existing !== undefined)
      throw alreadyExists(resource, name, existing.object.metadata.deletionTimestamp !== undefined);
    const key = keyOf(namespace, name);
    if (dryRun) return new Stored(key, object, 0);
    const stored = this.store.put(this.store.collection(resource), key, object);
    if (resource === definitions) for (const each of customKinds(object)) this.registry.add(each);
    return stored;
  }

  /** Replaces an object, or its status. Kinds with `createsOnUpdate` are created if absent. */
  update(place: Place, raw: JsonObject, options: WriteOptions): Written {
    const { resource, namespace, name } = place;
    const current = this.#found(place);
    if (current !== undefined)
      return { stored: this.#replace(place, current, cloneJson(raw), options), created: false };
    if (resource.createsOnUpdate !== true) throw notFound(resource, name);
    // Ignores the resourceVersion of an object that was deleted.
    const { resourceVersion: _old, ...metadata } = objectAt(raw, 'metadata');
    const stored = this.create(resource, namespace, { ...raw, metadata }, options);
    return { stored, created: true };
  }

  patch(place: Place, type: PatchType, patch: Json, options: WriteOptions = {}): Written {
    const current = this.get(place);
    const patched = cloneJson(applyPatch(type, current.object, patch));
    if (!isObject(patched)) throw badRequest('the patch leaves no object');
    return { stored: this.#replace(place, current, patched, options), created: false };
  }

  delete(place: Place, request: DeleteRequest = {}): Deleted {
    const { resource } = place;
    const current = this.get(place);
    checkPreconditions(resource, current, request);
    const { object } = current;
    const dryRun = request.dryRun === true;
    if (this.#canBeRemoved(resource, object)) {
      if (!dryRun) this.#remove(resource, current, object);
      return { stored: current, gone: true };
    }
    if (object.metadata.deletionTimestamp !== undefined || dryRun)
      return { stored: current, gone: false };
    const metadata = {
      ...object.metadata,
      deletionTimestamp: timestamp(this.#nowMs()),
      deletionGracePeriodSeconds: 0,
    };
    const collection = this.store.collection(resource);
    const isNamespace = resource === namespaces;
    const status = isNamespace ? { status: { phase: 'Terminating' } } : {};
    const stored = this.store.put(collection, current.key, { ...object, metadata, ...status });
    if (isNamespace) this.#empty(object.metadata.name);
    return { stored, gone: !collection.objects.has(current.key) };
  }

  get #context(): RuleContext {
    return {
      nowMs: this.#nowMs(),
      list: (resource) => this.store.collection(resource).sorted.map((each) => each.object),
    };
  }

  #found({ resource, namespace, name }: Place): Stored | undefined {
    return this.store.collection(resource).objects.get(keyOf(namespace, name));
  }

  /** @throws ApiError 404 or 403 if the namespace accepts no new objects */
  #checkNamespaceAccepts(resource: Resource, namespace: string, name: string): void {
    const home = this.get({ resource: namespaces, name: namespace });
    if (home.object.metadata.deletionTimestamp === undefined) return;
    const state = 'is being terminated';
    const why = `unable to create new content in namespace ${namespace} because it ${state}`;
    const message = `namespace ${namespace} ${state}`;
    const cause = { reason: 'NamespaceTerminating', message, field: 'metadata.namespace' };
    throw forbidden(resource, name, why, [cause]);
  }

  #replace(
    { resource, name }: Place,
    current: Stored,
    given: JsonObject,
    { subresource, dryRun = false }: WriteOptions,
  ): Stored {
    const old = current.object;
    checkName(given, name);
    const next = mergedParts(resource, old, given, subresource);
    resource.applyDefaults?.(next);
    resource.beforeUpdate?.(next, old, this.#context);
    checkObject(resource, next);
    const problem = subresource === undefined ? resource.validateUpdate?.(next, old) : undefined;
    if (problem !== undefined) throw invalid(resource, name, problem);
    if (equalJson(next, old)) return current;
    if (dryRun) return new Stored(current.key, next, 0);
    if (next.metadata.deletionTimestamp !== undefined && this.#canBeRemoved(resource, next)) {
      this.#remove(resource, current, next);
      return new Stored(current.key, next, current.revision);
    }
    return this.store.put(this.store.collection(resource), current.key, next);
  }

  /** Deletes all objects in a namespace, and the namespace when they are gone. */
  #empty(namespace: string): void {
    for (const { resource, stored } of this.#contentsOf(namespace)) {
      const place = { resource, namespace, name: stored.object.metadata.name };
      // A kind with two versions is listed twice.
      if (this.#found(place) !== undefined) this.delete(place);
    }
    this.#removeIfEmpty(namespace);
  }

  #contentsOf(namespace: string): { resource: Resource; stored: Stored }[] {
    return this.registry
      .all()
      .filter((resource) => resource.namespaced)
      .flatMap((resource) =>
        this.store
          .collection(resource)
          .sorted.filter(({ object }) => object.metadata.namespace === namespace)
          .map((stored) => ({ resource, stored })),
      );
  }

  #removeIfEmpty(namespace: string): void {
    const home = this.#found({ resource: namespaces, name: namespace });
    if (home !== undefined && this.#canBeRemoved(namespaces, home.object))
      this.store.remove(this.store.collection(namespaces), home);
  }

  /** An object without finalizers is removed when it is deleted; a namespace only when it is marked
   * as deleted and empty. */
  #canBeRemoved(resource: Resource, { metadata }: KubeObject): boolean {
    if ((metadata.finalizers ?? []).length > 0) return false;
    if (resource !== namespaces) return true;
    return metadata.deletionTimestamp !== undefined && this.#contentsOf(metadata.name).length === 0;
  }

  #remove(resource: Resource, current: Stored, last: KubeObject): void {
    this.store.remove(this.store.collection(resource), current, last);
    if (resource === definitions)
      for (const custom of customKinds(last)) {
        const collection = this.store.collection(custom);
        for (const each of collection.sorted) this.store.remove(collection, each);
        this.registry.remove(custom);
      }
    const { namespace } = last.metadata;
    if (namespace !== undefined) this.#removeIfEmpty(namespace);
  }
}

/** An object as it is stored. Kind and version come first: encoded lists cut them off by their
 * length. */
function objectOf(resource: Resource, members: JsonObject, metadata: Metadata): KubeObject {
  const { kind: _kind, apiVersion: _apiVersion, metadata: _metadata, ...rest } = members;
  return { kind: resource.kind, apiVersion: apiVersionOf(resource), metadata, ...rest };
}

// No vowels and no characters that look alike, as in the real server's random names.
const NAME_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

function generatedName(prefix: string): string {
  let suffix = '';
  for (let i = 0; i < 5; i += 1) suffix += NAME_ALPHABET[randomInt(NAME_ALPHABET.length)] ?? '';
  return prefix.slice(0, 58) + suffix;
}

/** The metadata of a new object: the given members, and those that the server sets.
 * @throws ApiError 400 for another namespace, 500 if the object has a resourceVersion, as the real
 *   server does */
function newMetadata(namespace: string | undefined, given: JsonObject, nowMs: number): Metadata {
  checkNamespace(given, namespace);
  if (textAt(given, 'resourceVersion') !== '') {
    const message = 'resourceVersion should not be set on objects to be created';
    throw new ApiError({ code: 500, reason: '', message });
  }
  const { deletionTimestamp: _deleted, deletionGracePeriodSeconds: _grace, ...kept } = given;
  const prefix = textAt(given, 'generateName');
  return {
    ...cloneJson(kept),
    name: textAt(given, 'name') || (prefix === '' ? '' : generatedName(prefix)),
    ...(namespace === undefined ? {} : { namespace }),
    uid: randomUUID(),
    resourceVersion: '',
    creationTimestamp: timestamp(nowMs),
  };
}

/** Merges an update: of the main object, which keeps its status, or of the status alone. */
function mergedParts(
  resource: Resource,
  old: KubeObject,
  given: JsonObject,
  subresource: 'status' | undefined,
): KubeObject {
  const metadata = changedMetadata(resource, objectAt(given, 'metadata'), old.metadata);
  if (subresource === 'status')
    return objectOf(resource, { ...cloneJson(old), ...memberOf(given, 'status') }, metadata);
  if (resource.hasStatus !== true) return objectOf(resource, given, metadata);
  const { status: _status, ...rest } = given;
  return objectOf(resource, { ...rest, ...memberOf(cloneJson(old), 'status') }, metadata);
}

/** The members of metadata that a write can change. */
const CHANGEABLE = ['labels', 'annotations', 'ownerReferences', 'finalizers'] as const;

/** The metadata of a changed object: members that only the server sets come from the stored one.
 * @throws ApiError 409 for another resourceVersion or uid, 422 for new finalizers of an object that
 *   is being deleted */
function changedMetadata(resource: Resource, given: JsonObject, old: Metadata): Metadata {
  checkNamespace(given, old.namespace);
  const uid = textAt(given, 'uid');
  if (uid !== '' && uid !== old.uid) {
    const why = `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${old.uid}`;
    throw conflict(resource, old.name, why);
  }
  const revision = textAt(given, 'resourceVersion');
  if (revision !== '' && revision !== '0' && revision !== old.resourceVersion)
    throw conflict(resource, old.name);
  const next: Metadata = { ...old };
  for (const name of CHANGEABLE) {
    const value = given[name];
    if (isEmpty(value)) delete next[name];
    else (next as JsonObject)[name] = value;
  }
  const added = (next.finalizers ?? []).filter((each) => !old.finalizers?.includes(each));
  if (old.deletionTimestamp !== undefined && added.length > 0) {
    const why = 'Forbidden: no new finalizers can be added if the object is being deleted';
    throw invalid(resource, old.name, { field: 'metadata.finalizers', why });
  }
  return next;
}

/** The server keeps no empty lists and maps in metadata. */
function isEmpty(value: Json | undefined): boolean {
  return !value || (typeof value === 'object' && Object.keys(value).length === 0);
}

/** @throws ApiError 422 */
function checkObject(resource: Resource, object: KubeObject): void {
  const { name } = object.metadata;
  const complaint = name === '' ? 'name or generateName is required' : subdomainComplaint(name);
  const problem =
    complaint === undefined
      ? resource.validate?.(object)
      : { field: 'metadata.name', why: `Invalid value: ${JSON.stringify(name)}: ${complaint}` };
  if (problem !== undefined) throw invalid(resource, name, problem);
}

function memberOf(object: JsonObject, name: string): JsonObject {
  return object[name] === undefined ? {} : { [name]: object[name] };
}

function checkName(object: JsonObject, expected: string): void {
  const name = textAt(object, 'metadata', 'name');
  if (name === expected) return;
  throw badRequest(
    `the name of the object (${name}) does not match the name on the URL (${expected})`,
  );
}

function checkNamespace(metadata: JsonObject, namespace: string | undefined): void {
  const given = textAt(metadata, 'namespace');
  if (given === '' || given === (namespace ?? '')) return;
  throw badRequest(
    'the namespace of the provided object does not match the namespace sent on the request',
  );
}

function checkPreconditions(resource: Resource, current: Stored, request: DeleteRequest): void {
  const { metadata } = current.object;
  const { uid, resourceVersion } = request.preconditions ?? {};
  if (uid !== undefined && uid !== metadata.uid) {
    const why =
      `the UID in the precondition (${uid}) does not match the UID in record (${metadata.uid}). ` +
      'The object might have been deleted and then recreated';
    throw conflict(resource, metadata.name, why);
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    const why =
      `the ResourceVersion in the precondition (${resourceVersion}) does not match ` +
      `the ResourceVersion in record (${metadata.resourceVersion}). ` +
      'The object might have been modified';
    throw conflict(resource, metadata.name, why);
  }
}
