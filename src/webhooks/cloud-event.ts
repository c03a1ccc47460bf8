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
  ignore,
  judgeIdentity,
  type ReadEvent,
  resourceOf,
} from './object-identity.ts';

/* CloudEvents 1.0 over HTTP. Those of Knative's ApiServerSource are understood, in both of its
 * modes; all others are ignored. */

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
  /** The value of an attribute; undefined if it is absent. */
  readonly attribute: (name: string) => unknown;
  /** How an attribute is called where it was found. */
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
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`);
  const hasData = isThere(value['data']);
  if (hasData && isThere(value['data_base64']))
    throw badField(at('data_base64'), 'an event has either data or data_base64, not both');
  return readEvent({
    attribute: (name) => value[name] ?? undefined,
    fieldOf: at,
    readData: () => readStructuredData(value, at),
    dataField: at(isThere(value['data_base64']) ? 'data_base64' : 'data'),
  });
}

function readStructuredData(event: Fields, at: (name: string) => string): unknown {
  const { datacontenttype, data, data_base64: base64 } = event;
  const type = typeof datacontenttype === 'string' ? datacontenttype.toLowerCase() : '';
  const isUnsaid = datacontenttype === undefined || datacontenttype === null;
  if (!isUnsaid && !isJsonType((type.split(';')[0] ?? '').trim()))
    throw badField(at('datacontenttype'), 'data about a Kubernetes object must be JSON');
  if (!isThere(base64)) return data ?? undefined;
  const bytes = typeof base64 === 'string' ? decodeBase64(base64) : undefined;
  if (bytes === undefined) throw badField(at('data_base64'), 'it must be a string of base64');
  return parseDocument(bytes, at('data_base64'));
}

/** Whether a request claims to be a CloudEvent in binary mode: it has each required attribute. */
export function isBinary(headers: HeaderValues): boolean {
  return REQUIRED.every((name) => headers[`ce-${name}`] !== undefined);
}

/** The required attributes that a request lacks although it has others; undefined if it has none
 * of them, so that it is no CloudEvent in binary mode at all. */
export function findMissingHeader(headers: HeaderValues): string | undefined {
  if (!Object.keys(headers).some((name) => name.startsWith('ce-'))) return undefined;
  const missing = REQUIRED.find((name) => headers[`ce-${name}`] === undefined);
  return missing === undefined ? undefined : `ce-${missing}`;
}

/** Reads an event in binary mode.
 * @param isJson  whether Content-Type says that the body is JSON
 * @throws RequestProblem */
export function readBinary(headers: HeaderValues, body: Buffer, isJson: boolean): ReadEvent {
  if (headers['ce-datacontenttype'] !== undefined)
    throw badField('ce-datacontenttype', 'it must not be there: Content-Type says it');
  const attributes = new Map<string, string>();
  for (const [header, values = []] of Object.entries(headers)) {
    if (!header.startsWith('ce-')) continue;
    if (values.length > 1) throw badField(header, 'it is there more than once');
    attributes.set(header.slice(3), decodeHeaderValue(values[0] ?? '', header));
  }
  return readEvent({
    attribute: (name) => attributes.get(name),
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
    const value = event.attribute(name);
    if (value === undefined || value === '')
      throw badField(event.fieldOf(name), 'it is missing: every CloudEvent has it');
    if (typeof value !== 'string') throw badField(event.fieldOf(name), 'it must be a string');
    return value;
  });
  if (version !== '1.0')
    throw badField(event.fieldOf('specversion'), 'only CloudEvents 1.0 are read');
  const eventId = eventIdOf(source, id);
  const shape = TYPE.exec(type)?.[1];
  if (shape === undefined) return { verdict: ignore('other-type'), eventId };
  return { verdict: judgeIdentity(readIdentity(event, shape === 'ref')), eventId };
}

function readIdentity(event: CloudEvent, isReference: boolean): Identity {
  const data = event.readData();
  if (data === undefined) return identityOfExtensions(event);
  const identity = isReference
    ? identityOfReference(data, event.dataField)
    : identityOfObject(data, event.dataField);
  compareExtensions(event, identity);
  return identity;
}

/** The identity that an event without data has in its extensions. */
function identityOfExtensions({ attribute, fieldOf, dataField }: CloudEvent): Identity {
  if (attribute('kind') === undefined && attribute('name') === undefined)
    throw badField(dataField, 'it is missing: it must be the object, or name it');
  return {
    apiVersion: attribute('apiversion'),
    kind: attribute('kind'),
    namespace: attribute('namespace'),
    name: attribute('name'),
    fieldOf: (part) => fieldOf(EXTENSIONS[part]),
  };
}

/** Refuses an event whose extensions name another object than its data: somebody changed one. */
function compareExtensions({ attribute, fieldOf }: CloudEvent, identity: Identity): void {
  for (const part of ['apiVersion', 'kind', 'namespace', 'name'] as const) {
    const extension = attribute(EXTENSIONS[part]);
    const value = identity[part];
    if (extension === undefined || extension === '' || typeof value !== 'string') continue;
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
