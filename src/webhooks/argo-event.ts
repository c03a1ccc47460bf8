import { type Fields, isFields } from '../runtime/json.ts';
import { badField } from './problem.ts';
import { decodeBase64, parseDocument } from './decode.ts';
import {
  eventIdOf,
  type Identity,
  identityOfObject,
  ignore,
  judgeIdentity,
  type ReadEvent,
  resourceOf,
  type Verdict,
} from './object-identity.ts';

/* Events of the resource event source of Argo Events, as its HTTP trigger sends them. Whoever
 * writes the sensor chooses which parts are sent, and whether as JSON or as a string that holds
 * JSON. */

const TYPES = new Set(['ADD', 'UPDATE', 'DELETE']);
const KINDS = {
  persistentvolumeclaims: 'PersistentVolumeClaim',
  persistentvolumes: 'PersistentVolume',
};

/** Where a missed deletion names its object. */
const KEY_FIELDS = {
  apiVersion: 'version',
  kind: 'resource',
  namespace: 'body.Key',
  name: 'body.Key',
};

/** Whether this is the data of the event source: an object with `body`. */
export function isArgoData(value: Fields): boolean {
  return 'body' in value || (typeof value['type'] === 'string' && TYPES.has(value['type']));
}

/** Whether this is a whole event of Argo Events, its data in base64. */
export function isArgoEvent(value: Fields): boolean {
  return isFields(value['context']) && 'data' in value;
}

/** Reads a whole event.
 * @throws RequestProblem */
export function readArgoEvent(event: Fields, path: string): ReadEvent {
  const context = isFields(event['context']) ? event['context'] : {};
  const { id, source, type } = context;
  const hasId = typeof id === 'string' && typeof source === 'string' && id !== '';
  const eventId = hasId ? eventIdOf(source, id) : undefined;
  if (type !== 'resource') return { verdict: ignore('other-type'), eventId };
  const field = `${path}data`;
  const bytes = typeof event['data'] === 'string' ? decodeBase64(event['data']) : undefined;
  if (bytes === undefined) throw badField(field, 'it must be a string of base64');
  const data = parseDocument(bytes, field);
  if (!isFields(data)) throw badField(field, 'it must hold a JSON object');
  return { verdict: readArgoData(data, `${field}.`), eventId };
}

/** Reads the data of the event source.
 * @throws RequestProblem */
export function readArgoData(data: Fields, path: string): Verdict {
  const { type, body } = data;
  if (type !== undefined && typeof type !== 'string')
    throw badField(`${path}type`, 'it must be a string');
  if (type !== undefined && !TYPES.has(type)) return ignore('other-type');
  const field = `${path}body`;
  const object = parseIfText(body, field);
  if (!isFields(object)) throw badField(field, 'it must be the object: a JSON object');
  if (typeof object['Key'] === 'string' && !('kind' in object))
    return judgeIdentity(identityOfKey(data, object['Key'], path));
  const identity = identityOfObject(object, field);
  compareConfiguration(data, identity, path);
  return judgeIdentity(identity);
}

/** A value that was sent as a string holding JSON is parsed, once.
 * @throws RequestProblem */
export function parseIfText(value: unknown, field: string): unknown {
  if (typeof value !== 'string' || !value.trimStart().startsWith('{')) return value;
  return parseDocument(Buffer.from(value), field);
}

/** The identity of a missed deletion: the event source knows only the key in its cache. */
function identityOfKey(data: Fields, key: string, path: string): Identity {
  const parts = key.split('/');
  if (parts.length > 2) throw badField(`${path}body.Key`, 'it must be namespace/name, or a name');
  const { group, version, resource } = data;
  if (typeof resource !== 'string' || resource === '')
    throw badField(`${path}resource`, 'it is missing: a deletion known by its key needs it');
  return {
    apiVersion: apiVersionOf(group ?? '', version ?? 'v1'),
    kind: Object.hasOwn(KINDS, resource) ? KINDS[resource as keyof typeof KINDS] : resource,
    namespace: parts.length === 2 ? parts[0] : '',
    name: parts.at(-1),
    fieldOf: (part) => `${path}${KEY_FIELDS[part]}`,
  };
}

/** Refuses an event whose object is of another kind than its event source was configured for. */
function compareConfiguration(data: Fields, identity: Identity, path: string): void {
  const { group, version, resource } = data;
  const differs = (field: string, from: string): Error =>
    badField(`${path}${field}`, `it differs from ${from}: the two must name the same kind`);
  const hasVersion = typeof version === 'string' && version !== '';
  if (typeof group === 'string' && hasVersion && typeof identity.apiVersion === 'string')
    if (apiVersionOf(group, version) !== identity.apiVersion)
      throw differs('version', identity.fieldOf('apiVersion'));
  if (typeof resource !== 'string' || resource === '' || typeof identity.kind !== 'string') return;
  const isServed = Object.hasOwn(KINDS, resource);
  const expected = resourceOf(identity.kind);
  if ((isServed || expected !== undefined) && expected !== resource)
    throw differs('resource', identity.fieldOf('kind'));
}

function apiVersionOf(group: unknown, version: unknown): unknown {
  return group === '' ? version : `${String(group)}/${String(version)}`;
}
