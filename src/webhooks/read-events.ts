import { type Fields, isFields } from '../runtime/json.ts';
import { badField, badFormat, catchProblem, type Problem, RequestProblem } from './problem.ts';
import { isArgoData, isArgoEvent, parseIfText, readArgoData, readArgoEvent } from './argo-event.ts';
import { findMissingHeader, isBinary, readBinary, readStructured } from './cloud-event.ts';
import { bodyFormat, type HeaderValues, parseDocument } from './decode.ts';
import {
  identityOfObject,
  ignore,
  judgeIdentity,
  type ReadEvent,
  type Verdict,
} from './object-identity.ts';

const MAX_BATCH = 1_000;
/** Types of events that say something about an object. */
const CHANGES = new Set(['ADDED', 'MODIFIED', 'DELETED']);
/** Types of events that say something about the watch. */
const REMARKS = new Set(['BOOKMARK', 'ERROR']);

/** What an event of a request says, or why it is refused. */
export type ReadResult = ReadEvent | { readonly problem: Problem };

/** Reads the body of POST /events: a CloudEvent in structured or binary mode, a batch of them, an
 * event of Argo Events, or a plain watch event.
 * @returns the events in their order
 * @throws RequestProblem if nothing of it can be used */
export function readEvents(headers: HeaderValues, body: Buffer): readonly ReadResult[] {
  const format = bodyFormat(headers);
  if (format === 'batch') return readBatch(parseDocument(body, 'body'));
  if (format === 'structured') return [readStructured(parseDocument(body, 'body'))];
  if (isBinary(headers)) return [readBinary(headers, body, format === 'json')];
  if (format === 'other')
    throw badFormat('Content-Type', 'events are read as application/json or as CloudEvents');
  return [readPlain(headers, parseDocument(body, 'body'))];
}

function readBatch(document: unknown): readonly ReadResult[] {
  if (!Array.isArray(document)) throw badField('body', 'a batch must be a JSON array');
  if (document.length > MAX_BATCH)
    throw new RequestProblem({
      status: 413,
      detail: `a batch may have ${MAX_BATCH} events: send several`,
      field: 'body',
    });
  return document.map((member, index) => {
    const read = catchProblem(() => readStructured(member, `[${index}]`));
    return 'value' in read ? read.value : read;
  });
}

/** Reads a body without CloudEvents headers. */
function readPlain(headers: HeaderValues, document: unknown): ReadEvent {
  const body = parseIfText(document, 'body');
  if (!isFields(body)) throw badField('body', 'it must be a JSON object, one event');
  const known = readKnown(body, '');
  if (known !== undefined) return known;
  // Argo Events may put the whole event under a name that the user has chosen.
  const [name = '', ...others] = Object.keys(body);
  const inner = others.length === 0 ? parseIfText(body[name], 'body') : undefined;
  const wrapped = isFields(inner) ? readKnown(inner, 'body.') : undefined;
  if (wrapped !== undefined) return wrapped;
  throw unknownShape(headers, body);
}

function readKnown(body: Fields, path: string): ReadEvent | undefined {
  if (isArgoEvent(body)) return readArgoEvent(body, path);
  if (isWatchEvent(body)) return { verdict: readWatchEvent(body, path), eventId: undefined };
  if (isArgoData(body)) return { verdict: readArgoData(body, path), eventId: undefined };
  return undefined;
}

/** Whether this is an event of a Kubernetes watch: an object with `object`, or one of its types. */
function isWatchEvent(value: Fields): boolean {
  const { type } = value;
  if (typeof type !== 'string') return 'object' in value;
  return CHANGES.has(type) || REMARKS.has(type) || ('object' in value && !('body' in value));
}

/** Reads a plain event of a Kubernetes watch.
 * @throws RequestProblem */
function readWatchEvent(event: Fields, path: string): Verdict {
  const { type, object } = event;
  if (typeof type !== 'string' || type === '')
    throw badField(`${path}type`, 'it must be the type of a watch event, such as ADDED');
  if (REMARKS.has(type)) return ignore('no-object');
  if (!CHANGES.has(type)) return ignore('other-type');
  return judgeIdentity(identityOfObject(object, `${path}object`));
}

function unknownShape(headers: HeaderValues, body: Fields): RequestProblem {
  const missing = findMissingHeader(headers);
  if (missing !== undefined)
    return badField(missing, 'it is missing: a CloudEvent in binary mode has it');
  if ('specversion' in body)
    return badField('Content-Type', 'send a CloudEvent as application/cloudevents+json');
  return badField(
    'body',
    'it is neither a CloudEvent, nor an event of Argo Events (type, body), ' +
      'nor a watch event (type, object)',
  );
}
