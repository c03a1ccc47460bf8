import { randomUUID } from 'node:crypto';
import type { Review, Steps } from './admission/review.ts';
import { alreadyExists, badRequest, conflict, forbidden, invalid, notFound } from './api-error.ts';
import { required } from './field-error.ts';
import {
  equalJson,
  isObject,
  objectAt,
  plainText,
  textAt,
  type Json,
  type JsonObject,
} from './json-value.ts';
import { keyOf, type KubeObject, type Metadata } from './kube-object.ts';
import { customResources } from './kinds/extensions.ts';
import { namespaces, namespaceStays, PERMANENT_NAMESPACES } from './kinds/core.ts';
import { listPage, type ListPage, type ListQuery } from './list-query.ts';
import { NamespaceSweep } from './namespace-sweep.ts';
import { applyPatch } from './patch/apply-patch.ts';
import { decodePatched, patchedBy, pruned, type PatchType } from './patching.ts';
import {
  changedMetadata,
  checkObject,
  decodeObject,
  finalizerCauses,
  generatedName,
  newMetadata,
  orderMetadata,
  requireObject,
  withoutStatus,
  type DecodeOptions,
} from './preparation.ts';
import type { Registry } from './registry.ts';
import { collectionName, type Resource, type RuleContext } from './resource.ts';
import { Stored, type Store } from './store.ts';
import { timestamp } from './time.ts';

/** Identifies an object: resource, namespace (undefined for cluster-scoped kinds) and name. */
export interface Place {
  readonly resource: Resource;
  readonly namespace?: string | undefined;
  readonly name: string;
}

export interface WriteOptions extends DecodeOptions {
  readonly dryRun?: boolean;
  readonly subresource?: 'status' | undefined;
  readonly fieldManager?: string;
  /** Server-side apply: take over fields that another manager applied. */
  readonly force?: boolean;
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

/** How often a generated name that is taken is generated again, as by the real server. */
const NAME_ATTEMPTS_MAX = 8;

export interface OperationsDeps {
  readonly registry: Registry;
  readonly store: Store;
  readonly nowMs: () => number;
  /** Told of each write that nobody waits to have reviewed. */
  readonly announce?: (review: Review) => void;
}

/** The API's operations without HTTP. The server's routes carry out their steps, and have webhooks
 * review each write in between; controllers in this process call the functions of the same name,
 * which wait for no review. Every operation throws ApiError for what the real server refuses. */
export class Operations {
  readonly registry: Registry;
  readonly store: Store;
  readonly #nowMs: () => number;
  readonly #announce: (review: Review) => void;
  readonly #sweep: NamespaceSweep;
  /** Objects in the shape of a view, by the view's resource and version. */
  readonly #presented = new Map<string, WeakMap<Stored, Stored>>();

  constructor(deps: OperationsDeps) {
    this.registry = deps.registry;
    this.store = deps.store;
    this.#nowMs = deps.nowMs;
    this.#announce = deps.announce ?? (() => {});
    this.#sweep = new NamespaceSweep(this);
  }

  /** The stored object; 404 where there is none. */
  get(place: Place): Stored {
    return this.present(place.resource, this.#find(place));
  }

  list(resource: Resource, query: ListQuery): ListPage {
    const page = listPage(this.store, this.store.collection(resource), query);
    return { ...page, items: page.items.map((each) => this.present(resource, each)) };
  }

  create(
    resource: Resource,
    namespace: string | undefined,
    raw: JsonObject,
    options: WriteOptions = {},
  ): Stored {
    return this.#atOnce(this.createSteps(resource, namespace, raw, options));
  }

  *createSteps(
    resource: Resource,
    namespace: string | undefined,
    raw: JsonObject,
    options: WriteOptions,
  ): Steps<Stored> {
    const decoded = decodeObject(resource, raw, options);
    const stored = yield* this.#insert(storedAs(resource), namespace, decoded, options);
    return this.present(resource, stored);
  }

  /** Replaces an object, or its status. Kinds with `createsOnUpdate` are created if absent. */
  *updateSteps(place: Place, raw: JsonObject, options: WriteOptions): Steps<Written> {
    const { resource, namespace, name } = place;
    const target = storedAs(resource);
    for (;;) {
      const decoded = decodeObject(resource, raw, options);
      checkName(decoded, name);
      checkNamespace(decoded, namespace);
      const current = this.store.collection(resource).objects.get(keyOf(namespace, name));
      if (current === undefined) {
        if (resource.createsOnUpdate !== true || options.subresource !== undefined)
          throw notFound(resource, name);
        // The resourceVersion of an object that was deleted since does not count.
        delete objectAt(decoded, 'metadata')['resourceVersion'];
        const created = yield* this.#insert(target, namespace, decoded, options);
        return { stored: this.present(resource, created), created: true };
      }
      const change = { ...options, isPatch: false };
      const stored = yield* this.#replace(target, current, decoded, change);
      if (stored !== undefined) return { stored: this.present(resource, stored), created: false };
    }
  }

  patch(place: Place, type: PatchType, patch: Json, options: WriteOptions = {}): Written {
    return this.#atOnce(this.patchSteps(place, type, patch, options));
  }

  *patchSteps(place: Place, type: PatchType, patch: Json, options: WriteOptions): Steps<Written> {
    const { resource, namespace, name } = place;
    for (;;) {
      const current = this.store.collection(resource).objects.get(keyOf(namespace, name));
      const written =
        type === 'apply'
          ? yield* this.#apply(place, current, requireObject(resource, patch), options)
          : yield* this.#applyPatch(place, current, { type, patch, options });
      if (written !== undefined) return written;
    }
  }

  delete(place: Place, request: DeleteRequest = {}): Deleted {
    return this.#atOnce(this.deleteSteps(place, request));
  }

  *deleteSteps(place: Place, request: DeleteRequest): Steps<Deleted> {
    const { resource } = place;
    const dryRun = request.dryRun === true;
    for (;;) {
      const current = this.#find(place);
      checkPreconditions(resource, current, request);
      if (resource === namespaces && PERMANENT_NAMESPACES.has(place.name))
        throw namespaceStays(place.name);
      yield deletionOf(resource, current, dryRun);
      if (this.#find(place) !== current) continue;
      const deleted = this.#delete(storedAs(resource), current, dryRun);
      return { ...deleted, stored: this.present(resource, deleted.stored) };
    }
  }

  /** Deletes the objects that a list with this query would return, and returns them. */
  *deleteCollectionSteps(resource: Resource, query: ListQuery, dryRun: boolean): Steps<ListPage> {
    const page = this.list(resource, query);
    const { objects } = this.store.collection(resource);
    const items: Stored[] = [];
    for (const { key } of page.items) {
      const reviewed = objects.get(key);
      if (reviewed !== undefined) yield deletionOf(resource, reviewed, dryRun);
      const current = objects.get(key);
      if (current === undefined) continue;
      const { stored } = this.#delete(storedAs(resource), current, dryRun);
      items.push(this.present(resource, stored));
    }
    return { ...page, items };
  }

  /** Carries out an operation without waiting for reviews. */
  #atOnce<Result>(steps: Steps<Result>): Result {
    let step = steps.next();
    while (step.done !== true) {
      this.#announce(step.value);
      step = steps.next();
    }
    return step.value;
  }

  /** A stored object as this resource shows it: unchanged, or in the view's version and shape. */
  present(resource: Resource, stored: Stored): Stored {
    if (resource.view === undefined) return stored;
    const name = `${collectionName(resource)}/${resource.version}`;
    const cached = this.#presented.get(name) ?? new WeakMap<Stored, Stored>();
    this.#presented.set(name, cached);
    const known = cached.get(stored);
    if (known !== undefined) return known;
    const object = headFirst(resource.view.fromStored(stored.object));
    const presented = new Stored(stored.key, object, stored.revision);
    cached.set(stored, presented);
    return presented;
  }

  get #context(): RuleContext {
    return {
      nowMs: this.#nowMs(),
      list: (plural, group) => {
        const resource = [...this.registry.all()].find(
          (each) => each.plural === plural && each.group === group,
        );
        return resource === undefined
          ? []
          : this.store.collection(resource).sorted.map((each) => each.object);
      },
    };
  }

  #find(place: Place): Stored {
    const found = this.store
      .collection(place.resource)
      .objects.get(keyOf(place.namespace, place.name));
    if (found === undefined) throw notFound(place.resource, place.name);
    return found;
  }

  *#insert(
    resource: Resource,
    namespace: string | undefined,
    decoded: JsonObject,
    options: WriteOptions,
  ): Steps<Stored> {
    checkNamespace(decoded, namespace);
    const context = this.#context;
    if (resource.review !== undefined)
      return new Stored('', headFirst(resource.review(asReview(decoded, context.nowMs))), 0);
    const given = objectAt(decoded, 'metadata');
    const metadata = newMetadata(resource, namespace, given, context.nowMs);
    if (namespace !== undefined) this.#checkNamespaceAccepts(resource, namespace, metadata.name);
    const object: KubeObject = headFirst({ ...decoded, metadata });
    resource.applyDefaults?.(object);
    resource.beforeCreate?.(object, context);
    const refusal = resource.admit?.(object, undefined, context);
    if (refusal !== undefined) throw refusal;
    checkObject(resource, object);
    const dryRun = options.dryRun === true;
    yield* this.#reviewNew(resource, object, { isGenerated: textAt(given, 'name') === '', dryRun });
    const collection = this.store.collection(resource);
    const key = keyOf(namespace, object.metadata.name);
    if (dryRun) return unstored(key, object);
    const stored = this.store.put(collection, key, object);
    this.#afterWrite(resource, stored.object);
    return stored;
  }

  /** Has a new object reviewed until its name is free: a generated one that is taken is generated
   * again. A name that is taken is found only after the review, as the object is stored. */
  *#reviewNew(
    resource: Resource,
    object: KubeObject,
    { isGenerated, dryRun }: { readonly isGenerated: boolean; readonly dryRun: boolean },
  ): Steps<void> {
    const { metadata } = object;
    const base = { resource, subresource: undefined, old: undefined, dryRun };
    for (let attempt = 0; ; attempt += 1) {
      yield { ...base, operation: 'CREATE', object };
      if (metadata.namespace !== undefined)
        this.#checkNamespaceAccepts(resource, metadata.namespace, metadata.name);
      const key = keyOf(metadata.namespace, metadata.name);
      const existing = this.store.collection(resource).objects.get(key);
      if (existing === undefined) return;
      if (!isGenerated || attempt === NAME_ATTEMPTS_MAX)
        throw alreadyExists(resource, metadata.name, isBeingDeleted(existing));
      metadata.name = generatedName(metadata.generateName ?? '');
      metadata.uid = randomUUID();
    }
  }

  /** @throws ApiError 404 or 403 if the namespace accepts no new objects */
  #checkNamespaceAccepts(resource: Resource, namespace: string, name: string): void {
    const found = this.store.collection(namespaces).objects.get(namespace);
    if (found === undefined) throw notFound(namespaces, namespace);
    if (found.object.metadata.deletionTimestamp === undefined) return;
    const state = 'is being terminated';
    const why = `unable to create new content in namespace ${namespace} because it ${state}`;
    const cause = {
      reason: 'NamespaceTerminating',
      message: `namespace ${namespace} ${state}`,
      field: 'metadata.namespace',
    };
    throw forbidden(resource, name, why, [cause]);
  }

  /** @returns undefined where the object has changed during the review: the write is based on it
   *   and has to be tried again */
  *#replace(
    resource: Resource,
    current: Stored,
    decoded: JsonObject,
    options: WriteOptions & { readonly isPatch: boolean },
  ): Steps<Stored | undefined> {
    const old = current.object;
    const next = this.#changedObject(resource, old, decoded, options);
    const { subresource, dryRun = false } = options;
    yield { resource, subresource, operation: 'UPDATE', object: next, old, dryRun };
    if (this.store.collection(resource).objects.get(current.key) !== current) return undefined;
    if (equalJson(next, old)) return current;
    if (dryRun) return unstored(current.key, next);
    if (next.metadata.deletionTimestamp !== undefined && this.#canBeRemoved(resource, next)) {
      this.#remove(resource, current, next);
      return new Stored(current.key, next, current.revision);
    }
    const stored = this.store.put(this.store.collection(resource), current.key, next);
    this.#afterWrite(resource, stored.object, old);
    return stored;
  }

  /** The object as a write makes it, with defaults, checked. */
  #changedObject(
    resource: Resource,
    old: KubeObject,
    decoded: JsonObject,
    options: WriteOptions & { readonly isPatch: boolean },
  ): KubeObject {
    const context = this.#context;
    const next = mergedParts(resource, old, decoded, options);
    resource.applyDefaults?.(next);
    resource.beforeUpdate?.(next, old, context);
    const refusal = resource.admit?.(next, old, context);
    checkObject(resource, next, [
      ...finalizerCauses(next.metadata, old.metadata),
      ...(resource.validateUpdate?.(next, old, options.subresource ?? 'main') ?? []),
    ]);
    if (refusal !== undefined) throw refusal;
    if (resource.hasGeneration === true && !equalJson(withoutStatus(next), withoutStatus(old)))
      next.metadata.generation = (old.metadata.generation ?? 0) + 1;
    return next;
  }

  /** @returns undefined where the object has changed during the review */
  *#applyPatch(
    place: Place,
    current: Stored | undefined,
    change: {
      readonly type: Exclude<PatchType, 'apply'>;
      readonly patch: Json;
      readonly options: WriteOptions;
    },
  ): Steps<Written | undefined> {
    const { resource, namespace, name } = place;
    const { type, patch, options } = change;
    if (current === undefined) throw notFound(resource, name);
    const before = this.present(resource, current).object;
    const patched = patchedBy(resource, type, before, patch);
    if (!isObject(patched)) throw badRequest('the patch leaves no object');
    checkName(patched, name);
    const decoded = decodePatched(resource, patched, options);
    checkNamespace(decoded, namespace);
    const isPatch = { ...options, isPatch: true };
    const stored = yield* this.#replace(storedAs(resource), current, decoded, isPatch);
    return stored && { stored: this.present(resource, stored), created: false };
  }

  /** @returns undefined where the object has changed during the review */
  *#apply(
    place: Place,
    current: Stored | undefined,
    wanted: JsonObject,
    options: WriteOptions,
  ): Steps<Written | undefined> {
    const { resource, namespace, name } = place;
    if (options.fieldManager === undefined || options.fieldManager === '') {
      throw invalid({ group: 'meta.k8s.io', kind: 'PatchOptions' }, '', [
        required('fieldManager', 'is required for apply patch'),
      ]);
    }
    if (textAt(wanted, 'metadata', 'name') !== '') checkName(wanted, name);
    if (current === undefined && options.subresource !== undefined) throw notFound(resource, name);
    const before = current === undefined ? undefined : this.present(resource, current).object;
    const request = {
      resource,
      manager: options.fieldManager,
      force: options.force === true,
      subresource: options.subresource,
      time: timestamp(this.#nowMs()),
    };
    // Decoded first, so that only fields that exist are owned and that values are compared in their
    // canonical form.
    const known = resource.view === undefined ? decodeObject(resource, wanted, options) : wanted;
    const merged = applyPatch(request, before, pruned(known, wanted));
    const target = storedAs(resource);
    const decoded = decodeObject(resource, merged, options);
    const stored =
      current === undefined
        ? yield* this.#insert(target, namespace, decoded, options)
        : yield* this.#replace(target, current, decoded, { ...options, isPatch: true });
    return stored && { stored: this.present(resource, stored), created: current === undefined };
  }

  #delete(resource: Resource, current: Stored, dryRun: boolean): Deleted {
    const { object } = current;
    if (this.#canBeRemoved(resource, object)) {
      if (!dryRun) this.#remove(resource, current, object);
      return { stored: current, gone: true };
    }
    if (object.metadata.deletionTimestamp !== undefined || dryRun)
      return { stored: current, gone: false };
    const metadata = deletingMetadata(resource, object.metadata, timestamp(this.#nowMs()));
    const collection = this.store.collection(resource);
    if (resource !== namespaces)
      return {
        stored: this.store.put(collection, current.key, { ...object, metadata }),
        gone: false,
      };
    const status = { ...objectAt(object, 'status'), phase: 'Terminating' };
    const stored = this.store.put(collection, current.key, { ...object, metadata, status });
    this.#sweep.empty(object.metadata.name);
    return { stored, gone: !collection.objects.has(current.key) };
  }

  /** An object without finalizers is removed when it is deleted; a namespace only when it is marked
   * as deleted and empty. */
  #canBeRemoved(resource: Resource, { metadata }: KubeObject): boolean {
    if ((metadata.finalizers ?? []).length > 0) return false;
    if (resource !== namespaces) return true;
    return metadata.deletionTimestamp !== undefined && this.#sweep.isEmpty(metadata.name);
  }

  #remove(resource: Resource, current: Stored, last: KubeObject): void {
    this.store.remove(this.store.collection(resource), current, last);
    if (resource.plural === 'customresourcedefinitions') {
      for (const custom of customResources(current.object)) {
        const collection = this.store.collection(custom);
        for (const each of collection.sorted) this.store.remove(collection, each);
        this.registry.remove(custom);
      }
    }
    const { namespace } = current.object.metadata;
    if (namespace === undefined) return;
    const home = this.store.collection(namespaces).objects.get(namespace);
    if (home !== undefined && this.#canBeRemoved(namespaces, home.object))
      this.store.remove(this.store.collection(namespaces), home);
  }

  #afterWrite(resource: Resource, object: KubeObject, old?: KubeObject): void {
    if (resource.plural !== 'customresourcedefinitions') return;
    // Versions that the definition no longer lists are no longer served.
    if (old !== undefined) for (const custom of customResources(old)) this.registry.remove(custom);
    for (const custom of customResources(object)) this.registry.add(custom);
  }
}

function deletionOf(resource: Resource, { object: old }: Stored, dryRun: boolean): Review {
  return { resource, subresource: undefined, operation: 'DELETE', object: undefined, old, dryRun };
}

function isBeingDeleted({ object }: Stored): boolean {
  return object.metadata.deletionTimestamp !== undefined;
}

/** The resource that stores the objects of this one. */
function storedAs(resource: Resource): Resource {
  return resource.view?.storedAs ?? resource;
}

/** An update of the main object leaves its status as it is, an update of the status the rest. */
function mergedParts(
  resource: Resource,
  old: KubeObject,
  decoded: JsonObject,
  options: WriteOptions & { readonly isPatch: boolean },
): KubeObject {
  const given = objectAt(decoded, 'metadata');
  const metadata = changedMetadata(resource, given, old.metadata, options.isPatch);
  if (old.metadata.managedFields !== undefined)
    metadata.managedFields ??= old.metadata.managedFields;
  if (options.subresource === 'status') {
    const kept = resource.statusLeavesMetadata === true ? { ...old.metadata } : metadata;
    return headFirst({ ...old, metadata: kept, ...memberOf(decoded, 'status') });
  }
  const status = resource.hasStatus === true ? memberOf(old, 'status') : {};
  return headFirst({ ...decoded, metadata, ...status });
}

/** The metadata of an object that is marked as deleted while finalizers keep it. */
function deletingMetadata(resource: Resource, old: Metadata, deletionTimestamp: string): Metadata {
  const generation = (old.generation ?? 0) + 1;
  return orderMetadata({
    ...old,
    deletionTimestamp,
    ...(resource === namespaces ? {} : { deletionGracePeriodSeconds: 0 }),
    ...(resource.hasGeneration === true ? { generation } : {}),
  });
}

/** Puts kind and version first: encoded lists cut them off by their length. */
function headFirst(object: JsonObject & { metadata: Metadata }): KubeObject {
  const { kind, apiVersion, metadata, ...rest } = object;
  return { kind: plainText(kind), apiVersion: plainText(apiVersion), metadata, ...rest };
}

/** A review is answered and never stored, so its only metadata is the time. */
function asReview(decoded: JsonObject, nowMs: number): KubeObject {
  const creationTimestamp = timestamp(nowMs);
  return headFirst({ ...decoded, metadata: { creationTimestamp } as Metadata });
}

function memberOf(object: JsonObject, name: string): JsonObject {
  return object[name] === undefined ? {} : { [name]: object[name] };
}

/** The result of a dry run: the object without a revision of its own. */
function unstored(key: string, object: KubeObject): Stored {
  return new Stored(key, object, 0);
}

function checkName(object: JsonObject, expected: string): void {
  const name = textAt(object, 'metadata', 'name');
  if (name === expected) return;
  throw badRequest(
    `the name of the object (${name}) does not match the name on the URL (${expected})`,
  );
}

function checkNamespace(object: JsonObject, namespace: string | undefined): void {
  const given = textAt(object, 'metadata', 'namespace');
  if (given === '' || given === (namespace ?? '')) return;
  throw badRequest(
    'the namespace of the provided object does not match the namespace sent on the request',
  );
}

function checkPreconditions(resource: Resource, current: Stored, request: DeleteRequest): void {
  const { metadata } = current.object;
  const { uid, resourceVersion } = request.preconditions ?? {};
  const named = { ...resource, plural: resource.kind };
  if (uid !== undefined && uid !== metadata.uid) {
    const why =
      `the UID in the precondition (${uid}) does not match the UID in record (${metadata.uid}). ` +
      'The object might have been deleted and then recreated';
    throw conflict(named, metadata.name, why);
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    const why =
      `the ResourceVersion in the precondition (${resourceVersion}) does not match ` +
      `the ResourceVersion in record (${metadata.resourceVersion}). ` +
      'The object might have been modified';
    throw conflict(named, metadata.name, why);
  }
}
