import {
  alreadyExists,
  badRequest,
  conflict,
  forbidden,
  invalid,
  notFound,
  type ApiError,
} from './api-error.ts';
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
import { KEPT_NAMESPACES, namespaces, namespaceStays } from './kinds/core.ts';
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
  requireObject,
  withoutStatus,
  type DecodeOptions,
} from './preparation.ts';
import type { Registry } from './registry.ts';
import { collectionName, type Resource, type RuleContext } from './resource.ts';
import { Stored, type Collection, type Store } from './store.ts';
import { timestamp } from './time.ts';

/** Where an object is: its resource, namespace (undefined for kinds without) and name. */
export interface Place {
  readonly resource: Resource;
  readonly namespace?: string | undefined;
  readonly name: string;
}

export interface WriteOptions extends DecodeOptions {
  readonly dryRun?: boolean;
  readonly subresource?: 'status' | undefined;
  readonly fieldManager?: string;
  /** Server-side apply: take fields that another manager applied. */
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
  /** False while finalizers hold it. */
  readonly gone: boolean;
}

export interface OperationsDeps {
  readonly registry: Registry;
  readonly store: Store;
  readonly nowMs: () => number;
}

/** All that a client can ask of the API, without HTTP: the server's handlers and the volume binder
 * call the same functions. Every function throws ApiError for what the real server refuses. */
export class Operations {
  readonly registry: Registry;
  readonly store: Store;
  readonly #nowMs: () => number;
  readonly #sweep: NamespaceSweep;
  readonly #faces = new Map<string, WeakMap<Stored, Stored>>();

  constructor(deps: OperationsDeps) {
    this.registry = deps.registry;
    this.store = deps.store;
    this.#nowMs = deps.nowMs;
    this.#sweep = new NamespaceSweep(this);
  }

  /** The stored object; 404 where there is none. */
  get(place: Place): Stored {
    return this.present(place.resource, this.#find(place));
  }

  list(resource: Resource, query: ListQuery): ListPage {
    const page = listPage(this.store, this.store.collection(resource), query);
    return resource.view === undefined
      ? page
      : { ...page, items: page.items.map((each) => this.present(resource, each)) };
  }

  create(
    resource: Resource,
    namespace: string | undefined,
    raw: JsonObject,
    options: WriteOptions = {},
  ): Stored {
    const decoded = decodeObject(resource, raw, options);
    const target = resource.view?.storedAs ?? resource;
    return this.present(resource, this.#insert(target, namespace, decoded, options));
  }

  /** Replaces an object, or its status. Kinds that allow it are created where they are not there.
   */
  update(place: Place, raw: JsonObject, options: WriteOptions = {}): Written {
    const { resource, namespace, name } = place;
    const decoded = decodeObject(resource, raw, options);
    const target = resource.view?.storedAs ?? resource;
    const bodyName = textAt(decoded, 'metadata', 'name');
    if (bodyName !== name) throw nameMismatch(bodyName, name);
    checkNamespace(decoded, namespace);
    const current = this.store.collection(resource).objects.get(keyOf(namespace, name));
    if (current === undefined) {
      if (resource.createsOnUpdate !== true || options.subresource !== undefined)
        throw notFound(resource, name);
      // A resourceVersion that is left from the object's former life does not matter.
      delete objectAt(decoded, 'metadata')['resourceVersion'];
      return {
        stored: this.present(resource, this.#insert(target, namespace, decoded, options)),
        created: true,
      };
    }
    return {
      stored: this.present(
        resource,
        this.#replace(target, current, decoded, { ...options, isPatch: false }),
      ),
      created: false,
    };
  }

  patch(place: Place, type: PatchType, patch: Json, options: WriteOptions = {}): Written {
    const { resource, namespace, name } = place;
    const current = this.store.collection(resource).objects.get(keyOf(namespace, name));
    if (type === 'apply')
      return this.#apply(place, current, requireObject(resource, patch), options);
    if (current === undefined) throw notFound(resource, name);
    const before = this.present(resource, current).object;
    const patched = patchedBy(resource, type, before, patch);
    if (!isObject(patched)) throw badRequest('the patch leaves no object');
    const patchedName = textAt(patched, 'metadata', 'name');
    if (patchedName !== name) throw nameMismatch(patchedName, name);
    const decoded = decodePatched(resource, patched, options);
    checkNamespace(decoded, namespace);
    const target = resource.view?.storedAs ?? resource;
    return {
      stored: this.present(
        resource,
        this.#replace(target, current, decoded, { ...options, isPatch: true }),
      ),
      created: false,
    };
  }

  delete(place: Place, request: DeleteRequest = {}): Deleted {
    const { resource } = place;
    const current = this.#find(place);
    checkPreconditions(resource, current, request);
    if (resource === namespaces && KEPT_NAMESPACES.has(place.name))
      throw namespaceStays(place.name);
    const deleted = this.#delete(
      resource.view?.storedAs ?? resource,
      current,
      request.dryRun === true,
    );
    return { ...deleted, stored: this.present(resource, deleted.stored) };
  }

  /** Deletes what a list would show; answers with it. */
  deleteCollection(resource: Resource, query: ListQuery, dryRun: boolean): ListPage {
    const page = this.list(resource, query);
    const items = page.items.flatMap((each) => {
      const current = this.store.collection(resource).objects.get(each.key);
      if (current === undefined) return [];
      return [
        this.present(
          resource,
          this.#delete(resource.view?.storedAs ?? resource, current, dryRun).stored,
        ),
      ];
    });
    return { ...page, items };
  }

  /** A stored object as this resource shows it: itself, or under the view's version and shape. */
  present(resource: Resource, stored: Stored): Stored {
    if (resource.view === undefined) return stored;
    const name = `${collectionName(resource)}/${resource.version}`;
    let faces = this.#faces.get(name);
    if (faces === undefined) this.#faces.set(name, (faces = new WeakMap()));
    let face = faces.get(stored);
    if (face === undefined) {
      face = new Stored(
        stored.key,
        headFirst(resource.view.fromStored(stored.object)),
        stored.revision,
      );
      faces.set(stored, face);
    }
    return face;
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

  #insert(
    resource: Resource,
    namespace: string | undefined,
    decoded: JsonObject,
    options: WriteOptions,
  ): Stored {
    checkNamespace(decoded, namespace);
    const context = this.#context;
    if (resource.review !== undefined)
      return new Stored('', headFirst(resource.review(asReview(decoded, context.nowMs))), 0);
    const given = objectAt(decoded, 'metadata');
    const metadata = newMetadata(resource, namespace, given, context.nowMs);
    if (namespace !== undefined) this.#checkHome(resource, namespace, metadata.name);
    const object: KubeObject = headFirst({ ...decoded, metadata });
    resource.applyDefaults?.(object);
    resource.beforeCreate?.(object, context);
    const refusal = resource.admit?.(object, undefined, context);
    if (refusal !== undefined) throw refusal;
    checkObject(resource, object);
    const collection = this.store.collection(resource);
    this.#chooseFreeName(resource, collection, object.metadata, textAt(given, 'name') === '');
    const key = keyOf(namespace, object.metadata.name);
    if (options.dryRun === true) return unstored(key, object);
    const stored = this.store.put(collection, key, object);
    this.#afterWrite(resource, stored.object);
    return stored;
  }

  #checkHome(resource: Resource, namespace: string, name: string): void {
    const home = this.store.collection(namespaces).objects.get(namespace);
    if (home === undefined) throw notFound(namespaces, namespace);
    if (home.object.metadata.deletionTimestamp === undefined) return;
    throw forbidden(
      resource,
      name,
      `unable to create new content in namespace ${namespace} because it is being terminated`,
      [
        {
          reason: 'NamespaceTerminating',
          message: `namespace ${namespace} is being terminated`,
          field: 'metadata.namespace',
        },
      ],
    );
  }

  #chooseFreeName(
    resource: Resource,
    collection: Collection,
    metadata: Metadata,
    isGenerated: boolean,
  ): void {
    for (let attempt = 0; ; attempt += 1) {
      const existing = collection.objects.get(keyOf(metadata.namespace, metadata.name));
      if (existing === undefined) return;
      if (!isGenerated || attempt === 8) {
        throw alreadyExists(
          resource,
          metadata.name,
          existing.object.metadata.deletionTimestamp !== undefined,
        );
      }
      metadata.name = generatedName(metadata.generateName ?? '');
    }
  }

  #replace(
    resource: Resource,
    current: Stored,
    decoded: JsonObject,
    options: WriteOptions & { readonly isPatch: boolean },
  ): Stored {
    const old = current.object;
    const context = this.#context;
    const part = options.subresource ?? 'main';
    const metadata = changedMetadata(
      resource,
      objectAt(decoded, 'metadata'),
      old.metadata,
      options.isPatch,
    );
    if (old.metadata.managedFields !== undefined && metadata.managedFields === undefined)
      metadata.managedFields = old.metadata.managedFields;
    const next: KubeObject =
      part === 'status'
        ? headFirst({
            ...old,
            metadata: resource.statusLeavesMetadata === true ? { ...old.metadata } : metadata,
            ...memberOf(decoded, 'status'),
          })
        : headFirst({
            ...decoded,
            metadata,
            ...(resource.hasStatus === true ? memberOf(old, 'status') : {}),
          });
    resource.applyDefaults?.(next);
    resource.beforeUpdate?.(next, old, context);
    const refusal = resource.admit?.(next, old, context);
    checkObject(resource, next, [
      ...finalizerCauses(next.metadata, old.metadata),
      ...(resource.validateUpdate?.(next, old, part) ?? []),
    ]);
    if (refusal !== undefined) throw refusal;
    if (resource.hasGeneration === true && !equalJson(withoutStatus(next), withoutStatus(old))) {
      next.metadata.generation = (old.metadata.generation ?? 0) + 1;
    }
    if (equalJson(next, old)) return current;
    if (options.dryRun === true) return unstored(current.key, next);
    if (
      next.metadata.deletionTimestamp !== undefined &&
      (next.metadata.finalizers ?? []).length === 0 &&
      this.#mayGo(resource, next)
    ) {
      this.#remove(resource, current, next);
      return new Stored(current.key, next, current.revision);
    }
    const stored = this.store.put(this.store.collection(resource), current.key, next);
    this.#afterWrite(resource, stored.object, old);
    return stored;
  }

  #apply(
    place: Place,
    current: Stored | undefined,
    wanted: JsonObject,
    options: WriteOptions,
  ): Written {
    const { resource, namespace, name } = place;
    if (options.fieldManager === undefined || options.fieldManager === '') {
      throw invalid({ group: 'meta.k8s.io', kind: 'PatchOptions' }, '', [
        required('fieldManager', 'is required for apply patch'),
      ]);
    }
    const bodyName = textAt(wanted, 'metadata', 'name');
    if (bodyName !== '' && bodyName !== name) throw nameMismatch(bodyName, name);
    if (current === undefined && options.subresource !== undefined) throw notFound(resource, name);
    const before = current === undefined ? undefined : this.present(resource, current).object;
    const request = {
      resource,
      manager: options.fieldManager,
      force: options.force === true,
      subresource: options.subresource,
      time: timestamp(this.#nowMs()),
    };
    // Decoded first, so that ownership is of fields that exist and values compare in their
    // canonical form.
    const known = resource.view === undefined ? decodeObject(resource, wanted, options) : wanted;
    const merged = applyPatch(request, before, pruned(known, wanted));
    const target = resource.view?.storedAs ?? resource;
    const decoded = decodeObject(resource, merged, options);
    const stored =
      current === undefined
        ? this.#insert(target, namespace, decoded, options)
        : this.#replace(target, current, decoded, { ...options, isPatch: true });
    return { stored: this.present(resource, stored), created: current === undefined };
  }

  #delete(resource: Resource, current: Stored, dryRun: boolean): Deleted {
    const { object } = current;
    const held = (object.metadata.finalizers ?? []).length > 0 || !this.#mayGo(resource, object);
    if (!held) {
      if (!dryRun) this.#remove(resource, current, object);
      return { stored: current, gone: true };
    }
    if (object.metadata.deletionTimestamp !== undefined || dryRun)
      return { stored: current, gone: false };
    const { labels, annotations, ownerReferences, finalizers, managedFields, ...head } =
      object.metadata;
    const metadata: Metadata = {
      ...head,
      deletionTimestamp: timestamp(this.#nowMs()),
      ...(resource === namespaces ? {} : { deletionGracePeriodSeconds: 0 }),
      ...(resource.hasGeneration === true ? { generation: (head.generation ?? 0) + 1 } : {}),
      ...(labels === undefined ? {} : { labels }),
      ...(annotations === undefined ? {} : { annotations }),
      ...(ownerReferences === undefined ? {} : { ownerReferences }),
      ...(finalizers === undefined ? {} : { finalizers }),
      ...(managedFields === undefined ? {} : { managedFields }),
    };
    const status =
      resource === namespaces
        ? { status: { ...objectAt(object, 'status'), phase: 'Terminating' } }
        : {};
    const stored = this.store.put(this.store.collection(resource), current.key, {
      ...object,
      metadata,
      ...status,
    });
    if (resource === namespaces) this.#sweep.empty(object.metadata.name);
    return {
      stored,
      gone: resource === namespaces && !this.store.collection(resource).objects.has(current.key),
    };
  }

  /** A namespace goes only when it is empty. */
  #mayGo(resource: Resource, object: KubeObject): boolean {
    return (
      resource !== namespaces ||
      (object.metadata.deletionTimestamp !== undefined && this.#sweep.isEmpty(object.metadata.name))
    );
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
    if (
      home?.object.metadata.deletionTimestamp !== undefined &&
      this.#mayGo(namespaces, home.object)
    ) {
      this.store.remove(this.store.collection(namespaces), home);
    }
  }

  #afterWrite(resource: Resource, object: KubeObject, old?: KubeObject): void {
    if (resource.plural !== 'customresourcedefinitions') return;
    // A version that the definition lists no more is no longer served.
    if (old !== undefined) for (const custom of customResources(old)) this.registry.remove(custom);
    for (const custom of customResources(object)) this.registry.add(custom);
  }
}

/** Kind and version in front: encoded lists cut them off by their length. */
function headFirst(object: JsonObject & { metadata: Metadata }): KubeObject {
  const { kind, apiVersion, metadata, ...rest } = object;
  return { kind: plainText(kind), apiVersion: plainText(apiVersion), metadata, ...rest };
}

/** A review is answered, never stored: of its metadata only the time says something. */
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

function nameMismatch(name: string, wanted: string): ApiError {
  return badRequest(
    `the name of the object (${name}) does not match the name on the URL (${wanted})`,
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
    const why = `the UID in the precondition (${uid}) does not match the UID in record (${metadata.uid}). The object might have been deleted and then recreated`;
    throw conflict(named, metadata.name, why);
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    const why = `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${metadata.resourceVersion}). The object might have been modified`;
    throw conflict(named, metadata.name, why);
  }
}
