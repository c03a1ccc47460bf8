import { randomInt, randomUUID } from 'node:crypto';
import { ApiError, badRequest, conflict, invalid, type Cause } from './api-error.ts';
import { forbiddenValue, immutable, invalidValue } from './field-error.ts';
import { isObject, textAt, type JsonObject } from './json-value.ts';
import type { KubeObject, Metadata } from './kube-object.ts';
import { metadataCauses, subdomainComplaint } from './names.ts';
import { apiVersionOf, type Resource } from './resource.ts';
import { DecodeError, decodeStruct } from './schema/decode.ts';
import { timestamp } from './time.ts';

/** What happens to members that no field describes: dropped silently, dropped and reported, or the
 * request is refused. */
export type FieldValidation = 'Ignore' | 'Warn' | 'Strict';

export interface DecodeOptions {
  readonly fieldValidation?: FieldValidation | undefined;
  /** Receives one line per dropped member under `Warn`. */
  readonly warnings?: string[] | undefined;
}

/** Checks a request's object and brings it into the form that this resource stores.
 * @throws ApiError 400 for another kind, a value of the wrong type, or unknown members under
 *   `Strict` */
export function decodeObject(
  resource: Resource,
  raw: JsonObject,
  options: DecodeOptions,
): JsonObject {
  const kind = textAt(raw, 'kind') || resource.kind;
  const apiVersion = textAt(raw, 'apiVersion') || apiVersionOf(resource);
  if (kind !== resource.kind || apiVersion !== apiVersionOf(resource)) {
    throw cannotHandle(resource, `no conversion from ${apiVersion} ${kind}`);
  }
  const unknown: string[] = [];
  const { kind: _kind, apiVersion: _apiVersion, ...members } = raw;
  try {
    const decoded: JsonObject = {
      kind,
      apiVersion,
      ...decodeStruct(resource.struct, members, unknown),
    };
    if (unknown.length > 0) reportUnknown(resource, unknown, options);
    return resource.view === undefined
      ? decoded
      : decodeObject(resource.view.storedAs, resource.view.toStored(decoded), {});
  } catch (error) {
    if (error instanceof DecodeError) throw cannotHandle(resource, error.message);
    throw error;
  }
}

function reportUnknown(
  resource: Resource,
  unknown: readonly string[],
  options: DecodeOptions,
): void {
  const mode = options.fieldValidation ?? 'Warn';
  const lines = unknown.map((path) => `unknown field ${JSON.stringify(path)}`);
  if (mode === 'Strict') throw cannotHandle(resource, `strict decoding error: ${lines.join(', ')}`);
  if (mode === 'Warn') options.warnings?.push(...lines);
}

function cannotHandle(resource: Resource, why: string): ApiError {
  const { kind, version } = resource;
  return badRequest(`${kind} in version "${version}" cannot be handled as a ${kind}: ${why}`);
}

// No vowels and no characters that look alike, as in the real server's random names.
const NAME_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/** The prefix with five random characters, cut to the maximum length of a name. */
export function generatedName(prefix: string): string {
  let suffix = '';
  for (let i = 0; i < 5; i += 1) suffix += NAME_ALPHABET[randomInt(NAME_ALPHABET.length)] ?? '';
  return prefix.slice(0, 58) + suffix;
}

/** The metadata of a new object: the given members, and uid, creation time, namespace and generated
 * name, which the server sets.
 * @throws ApiError 500 where the object has a resourceVersion, as the real server does */
export function newMetadata(
  resource: Resource,
  namespace: string | undefined,
  given: JsonObject,
  nowMs: number,
): Metadata {
  if (textAt(given, 'resourceVersion') !== '') {
    throw new ApiError({
      code: 500,
      reason: '',
      message: 'resourceVersion should not be set on objects to be created',
    });
  }
  const {
    resourceVersion: _revision,
    deletionTimestamp: _deleted,
    deletionGracePeriodSeconds: _grace,
    ...rest
  } = given;
  const generateName = textAt(given, 'generateName');
  const name = textAt(given, 'name') || (generateName === '' ? '' : generatedName(generateName));
  return {
    name,
    ...(generateName === '' ? {} : { generateName }),
    ...(resource.namespaced && namespace !== undefined ? { namespace } : {}),
    ...withoutIdentity(rest),
    uid: randomUUID(),
    resourceVersion: '',
    ...(resource.hasGeneration === true ? { generation: 1 } : {}),
    creationTimestamp: timestamp(nowMs),
    ...lastMembers(rest),
  };
}

const IDENTITY = new Set([
  'name',
  'generateName',
  'namespace',
  'uid',
  'generation',
  'creationTimestamp',
  'selfLink',
]);
const LAST = new Set(['labels', 'annotations', 'ownerReferences', 'finalizers', 'managedFields']);

function withoutIdentity(given: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(given).filter(([name]) => !IDENTITY.has(name) && !LAST.has(name)),
  );
}

function lastMembers(given: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(given).filter(([name]) => LAST.has(name)));
}

/** Puts labels, annotations and the like behind the other members, as the server writes them. */
export function orderMetadata(metadata: Metadata): Metadata {
  const names = Object.keys(metadata).sort((a, b) => Number(LAST.has(a)) - Number(LAST.has(b)));
  return Object.fromEntries(names.map((name) => [name, metadata[name]])) as Metadata;
}

/** The metadata of a changed object. Members that only the server sets come from the stored object.
 * @param isPatch  a patch that changes the uid is invalid, a PUT with another uid is a conflict
 * @throws         ApiError 409 for another resourceVersion or uid, 422 for a uid changed by a patch
 */
export function changedMetadata(
  resource: Resource,
  given: JsonObject,
  old: Metadata,
  isPatch: boolean,
): Metadata {
  const uid = textAt(given, 'uid');
  if (uid !== '' && uid !== old.uid) {
    if (isPatch) throw invalid(resource, old.name, [immutable('metadata.uid', uid)]);
    throw conflict(
      resource,
      old.name,
      `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${old.uid}`,
    );
  }
  const revision = textAt(given, 'resourceVersion');
  if (revision !== '' && revision !== '0' && revision !== old.resourceVersion)
    throw conflict(resource, old.name);
  if (!isPatch && (revision === '' || revision === '0') && resource.needsResourceVersion === true) {
    throw invalid({ group: resource.group, kind: resource.plural }, old.name, [
      invalidValue('metadata.resourceVersion', 0, 'must be specified for an update'),
    ]);
  }
  const kept = (name: string): JsonObject => (old[name] === undefined ? {} : { [name]: old[name] });
  return {
    name: old.name,
    ...kept('generateName'),
    ...(old.namespace === undefined ? {} : { namespace: old.namespace }),
    uid: old.uid,
    resourceVersion: old.resourceVersion,
    ...kept('generation'),
    creationTimestamp: old.creationTimestamp,
    ...kept('deletionTimestamp'),
    ...kept('deletionGracePeriodSeconds'),
    ...lastMembers(given),
  };
}

/** Validates an object that is about to be stored.
 * @throws ApiError 422 with all errors */
export function checkObject(
  resource: Resource,
  object: KubeObject,
  more: readonly Cause[] = [],
): void {
  const causes = [
    ...metadataCauses(object.metadata, resource.nameComplaint ?? subdomainComplaint),
    ...(resource.validate?.(object) ?? []),
    ...more,
  ];
  if (causes.length > 0) throw invalid(resource, object.metadata.name, causes);
}

/** An object that is being deleted takes no new finalizers. */
export function finalizerCauses(next: Metadata, old: Metadata): Cause[] {
  if (old.deletionTimestamp === undefined) return [];
  const added = (next.finalizers ?? []).filter((each) => !(old.finalizers ?? []).includes(each));
  if (added.length === 0) return [];
  const list = added.map((each) => JSON.stringify(each)).join(', ');
  const detail =
    'no new finalizers can be added if the object is being deleted, ' +
    `found new finalizers []string{${list}}`;
  return [forbiddenValue('metadata.finalizers', detail)];
}

/** The object without metadata and status: `generation` counts the changes of the rest. */
export function withoutStatus(object: KubeObject): JsonObject {
  const { metadata: _metadata, status: _status, ...rest } = object;
  return rest;
}

/** The body of a request, which must be an object.
 * @throws ApiError 400 for other JSON values */
export function requireObject(resource: Resource, body: unknown): JsonObject {
  if (isObject(body)) return body;
  const found = Array.isArray(body) ? 'array' : typeof body;
  throw badRequest(
    `the object provided is unrecognized (must be of type ${resource.kind}): ` +
      `couldn't get version/kind; json: cannot unmarshal ${found} into Go value`,
  );
}
