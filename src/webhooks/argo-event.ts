import { type Fields, isFields } from '../runtime/json.ts';
import { badField } from './problem.ts';
import { decodeBase64, parseDocument } from './decode.ts';
import {
  eventIdOf,
  identityOfObject,
  judgeIdentity,
  type ReadEvent,
  type Verdict,
} from './object-identity.ts';

/* Events of the resource event source of Argo Events, as its HTTP trigger sends them. The user's
 * sensor chooses the parts to send, as JSON or as a string that contains JSON. */

const TYPES = new Set(['ADD', 'UPDATE', 'DELETE']);

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
  const { id, source, type } = isFields(event['context']) ? event['context'] : {};
  const hasId = typeof id === 'string' && typeof source === 'string' && id !== '';
  const named = hasId ? { eventId: eventIdOf(source, id) } : {};
  if (type !== 'resource') return { verdict: 'other-type', ...named };
  const field = `${path}data`;
  const bytes = typeof event['data'] === 'string' ? decodeBase64(event['data']) : undefined;
  if (bytes === undefined) throw badField(field, 'it must be a string of base64');
  const data = parseDocument(bytes, field);
  if (!isFields(data)) throw badField(field, 'it must hold a JSON object');
  return { verdict: readArgoData(data, `${field}.`), ...named };
}

/** Reads the data of the event source.
 * @throws RequestProblem */
export function readArgoData({ type, body }: Fields, path: string): Verdict {
  if (type !== undefined && typeof type !== 'string')
    throw badField(`${path}type`, 'it must be a string');
  if (type !== undefined && !TYPES.has(type)) return 'other-type';
  const field = `${path}body`;
  const object = parseIfText(body, field);
  if (!isFields(object)) throw badField(field, 'it must be the object: a JSON object');
  // A deletion that the event source missed: it knows only the key in its cache.
  if (typeof object['Key'] === 'string' && !('kind' in object)) return 'no-object';
  return judgeIdentity(identityOfObject(object, field));
}

/** Parses a value that was sent as a string that contains JSON, once.
 * @throws RequestProblem */
export function parseIfText(value: unknown, field: string): unknown {
  if (typeof value !== 'string' || !value.trimStart().startsWith('{')) return value;
  return parseDocument(Buffer.from(value), field);
}
