import { type Fields, isFields } from '../runtime/json.ts';
import { badField, badFormat } from './problem.ts';
import {
  decodeBase64,
  decodeHeaderValue,
  type HeaderValues,
  isJsonType,
  parseDocument,
} from './decode.ts';
import {
  eventIdOf,
  type Identity,
  identityOfObject,
  identityOfReference,
  type IdentityPart,
  judgeIdentity,
  type ReadEvent,
  resourceOf,
} from './object-identity.ts';

/* CloudEvents 1.0 over HTTP. sutler reads the events of Knative's ApiServerSource, in both of its
 * modes, and ignores all others. */

const REQUIRED = ['id', 'source', 'specversion', 'type'] as const;
const TYPE = /^dev\.knative\.apiserver\.(resource|ref)\.(?:add|update|delete)$/;
/** The extension that repeats each part of the identity. */
const EXTENSIONS: Readonly<Record<IdentityPart, string>> = {
  apiVersion: 'apiversion',
  kind: 'kind',
  namespace: 'namespace',
  name: 'name',
};

/** An event, however it arrived. */
interface CloudEvent {
  readonly attributes: Fields;
  /** The name of an attribute in this mode, for problems. */
  readonly fieldOf: (name: string) => string;
  /** @returns undefined if the event has no data
   * @throws RequestProblem */
  readonly readData: () => unknown;
  readonly dataField: string;
}

/** Reads an event in structured mode.
 * @param path  where it is in the body; '' for the whole body
 * @throws RequestProblem */
export function readStructured(value: unknown, path = ''): ReadEvent {
  if (!isFields(value))
    throw badField(path === '' ? 'body' : path, 'it must be a JSON object, one CloudEvent');
  const fieldOf = (name: string): string => (path === '' ? name : `${path}.${name}`);
  const { data, data_base64: base64 } = value;
  if (isThere(data) && isThere(base64))
    throw badField(fieldOf('data_base64'), 'an event has either data or data_base64, not both');
  return readEvent({
    attributes: value,
    fieldOf,
    readData: () => readStructuredData(value, fieldOf),
    dataField: fieldOf(isThere(base64) ? 'data_base64' : 'data'),
  });
}

function readStructuredData(event: Fields, fieldOf: CloudEvent['fieldOf']): unknown {
  const { datacontenttype, data, data_base64: base64 } = event;
  const type = typeof datacontenttype === 'string' ? datacontenttype.toLowerCase() : '';
  if (isThere(datacontenttype) && !isJsonType((type.split(';')[0] ?? '').trim()))
    throw badField(fieldOf('datacontenttype'), 'data about a Kubernetes object must be JSON');
  if (!isThere(base64)) return data ?? undefined;
  const bytes = typeof base64 === 'string' ? decodeBase64(base64) : undefined;
  if (bytes === undefined) throw badField(fieldOf('data_base64'), 'it must be a string of base64');
  return parseDocument(bytes, fieldOf('data_base64'));
}

/** The headers of required attributes that a request lacks. A CloudEvent in binary mode lacks none,
 * and a request that is no such event lacks all. */
export function missingHeaders(headers: HeaderValues): readonly string[] {
  return REQUIRED.map((name) => `ce-${name}`).filter((header) => headers[header] === undefined);
}

/** Reads an event in binary mode.
 * @param isJson  whether Content-Type says that the body is JSON
 * @throws RequestProblem */
export function readBinary(headers: HeaderValues, body: Buffer, isJson: boolean): ReadEvent {
  if (headers['ce-datacontenttype'] !== undefined)
    throw badField('ce-datacontenttype', 'remove it: Content-Type says the same');
  const attributes = new Map<string, string>();
  for (const [header, values = []] of Object.entries(headers)) {
    if (!header.startsWith('ce-')) continue;
    if (values.length > 1) throw badField(header, 'it is there more than once');
    attributes.set(header.slice(3), decodeHeaderValue(values[0] ?? '', header));
  }
  return readEvent({
    attributes: Object.fromEntries(attributes),
    fieldOf: (name) => `ce-${name}`,
    readData: () => {
      if (isJson) return parseDocument(body, 'body');
      throw badFormat('Content-Type', 'data about a Kubernetes object must be application/json');
    },
    dataField: 'body',
  });
}

function readEvent(event: CloudEvent): ReadEvent {
  const [id = '', source = '', version, type = ''] = REQUIRED.map((name) => {
    const value = event.attributes[name];
    if (!isThere(value) || value === '')
      throw badField(event.fieldOf(name), 'it is missing: every CloudEvent has it');
    if (typeof value !== 'string') throw badField(event.fieldOf(name), 'it must be a string');
    return value;
  });
  if (version !== '1.0')
    throw badField(event.fieldOf('specversion'), 'only CloudEvents 1.0 are read');
  const eventId = eventIdOf(source, id);
  const shape = TYPE.exec(type)?.[1];
  if (shape === undefined) return { verdict: 'other-type', eventId };
  return { verdict: judgeIdentity(readIdentity(event, shape === 'ref')), eventId };
}

/** Reads the identity from the data or, without data, from the extensions. */
function readIdentity(event: CloudEvent, isReference: boolean): Identity {
  const { attributes, fieldOf, dataField } = event;
  const data = event.readData();
  if (data !== undefined) {
    const read = isReference ? identityOfReference : identityOfObject;
    const identity = read(data, dataField);
    compareExtensions(event, identity);
    return identity;
  }
  const { apiversion: apiVersion, kind, namespace, name } = attributes;
  if (!isThere(kind) && !isThere(name))
    throw badField(dataField, 'it is missing: it must be the object, or name it');
  return { apiVersion, kind, namespace, name, fieldOf: (part) => fieldOf(EXTENSIONS[part]) };
}

/** Refuses an event whose extensions name another object than its data: somebody changed one. */
function compareExtensions({ attributes, fieldOf }: CloudEvent, identity: Identity): void {
  for (const part of ['apiVersion', 'kind', 'namespace', 'name'] as const) {
    const extension = attributes[EXTENSIONS[part]];
    const value = identity[part];
    if (!isThere(extension) || extension === '' || typeof value !== 'string') continue;
    if (part === 'namespace' && resourceOf(identity.kind) === 'persistentvolumes') continue;
    if (value !== '' && extension !== value)
      throw badField(
        fieldOf(EXTENSIONS[part]),
        `it differs from ${identity.fieldOf(part)}: the two must name the same object`,
      );
  }
}

function isThere(value: unknown): boolean {
  return value !== undefined && value !== null;
}
