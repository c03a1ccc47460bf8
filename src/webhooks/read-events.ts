import { type Fields, isFields } from '../runtime/json.ts';
import { badField, badFormat, orProblem, RequestProblem } from './problem.ts';
import { isArgoData, isArgoEvent, parseIfText, readArgoData, readArgoEvent } from './argo-event.ts';
import { missingHeaders, readBinary, readStructured } from './cloud-event.ts';
import { bodyFormat, type HeaderValues, parseDocument } from './decode.ts';
import {
  identityOfObject,
  judgeIdentity,
  type ReadEvent,
  type Verdict,
} from './object-identity.ts';

const MAX_BATCH = 1_000;
/** Types of events that say something about an object. */
const CHANGES = new Set(['ADDED', 'MODIFIED', 'DELETED']);
/** Types of events that say something about the watch. */
const REMARKS = new Set(['BOOKMARK', 'ERROR']);

/** Reads the body of POST /events: a CloudEvent in structured or binary mode, a batch of them, an
 * event of Argo Events, or a plain watch event.
 * @returns what each event says, or why it is refused, in order
 * @throws RequestProblem if ingest can use no part of it */
export function readEvents(
  headers: HeaderValues,
  body: Buffer,
): readonly (ReadEvent | RequestProblem)[] {
  const format = bodyFormat(headers);
  const missing = missingHeaders(headers);
  if (format === 'batch') return readBatch(parseDocument(body, 'body'));
  if (format === 'structured') return [readStructured(parseDocument(body, 'body'))];
  if (missing.length === 0) return [readBinary(headers, body, format === 'json')];
  if (format === 'other')
    throw badFormat(
      'Content-Type',
      'events are read as application/json, CloudEvents as application/cloudevents+json, batches ' +
        'as application/cloudevents-batch+json',
    );
  const document = parseIfText(parseDocument(body, 'body'), 'body');
  if (!isFields(document)) throw badField('body', 'it must be a JSON object, one event');
  const read = readPlain(document);
  if (read !== undefined) return [read];
  const hasSome = Object.keys(headers).some((name) => name.startsWith('ce-'));
  if (hasSome && missing[0] !== undefined)
    throw badField(missing[0], 'it is missing: a CloudEvent in binary mode has it');
  if ('specversion' in document)
    throw badField('Content-Type', 'send a CloudEvent as application/cloudevents+json');
  throw badField(
    'body',
    'it is neither a CloudEvent, nor an event of Argo Events (type, body), ' +
      'nor a watch event (type, object)',
  );
}

function readBatch(document: unknown): readonly (ReadEvent | RequestProblem)[] {
  if (!Array.isArray(document)) throw badField('body', 'a batch must be a JSON array');
  if (document.length > MAX_BATCH)
    throw new RequestProblem(413, `a batch may have ${MAX_BATCH} events: send several`, 'body');
  return document.map((member, index) => orProblem(() => readStructured(member, `[${index}]`)));
}

/** Reads a body without CloudEvents headers. Argo Events may put the whole event under a name that
 * the user has chosen. */
function readPlain(body: Fields): ReadEvent | undefined {
  const [name = '', ...others] = Object.keys(body);
  const known = readKnown(body, '');
  if (known !== undefined || others.length > 0) return known;
  const inner = parseIfText(body[name], 'body');
  return isFields(inner) ? readKnown(inner, 'body.') : undefined;
}

function readKnown(body: Fields, path: string): ReadEvent | undefined {
  if (isArgoEvent(body)) return readArgoEvent(body, path);
  if (isWatchEvent(body)) return { verdict: readWatchEvent(body, path) };
  return isArgoData(body) ? { verdict: readArgoData(body, path) } : undefined;
}

/** Whether this is an event of a Kubernetes watch: an object with `object`, or one of its types. */
function isWatchEvent(value: Fields): boolean {
  const { type } = value;
  if (typeof type !== 'string') return 'object' in value;
  return CHANGES.has(type) || REMARKS.has(type) || ('object' in value && !('body' in value));
}

/** Reads a plain event of a Kubernetes watch.
 * @throws RequestProblem */
function readWatchEvent({ type, object }: Fields, path: string): Verdict {
  if (typeof type !== 'string' || type === '')
    throw badField(`${path}type`, 'it must be the type of a watch event, such as ADDED');
  if (REMARKS.has(type)) return 'no-object';
  if (!CHANGES.has(type)) return 'other-type';
  return judgeIdentity(identityOfObject(object, `${path}object`));
}
