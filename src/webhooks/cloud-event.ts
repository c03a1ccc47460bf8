import { type Fields, isFields } from '../runtime/json.ts';
import { badField, badFormat } from './problem.ts';
import { type HeaderValues, isJsonType, parseBase64, parseDocument } from './decode.ts';
import {
  eventIdOf,
  judgeObject,
  judgeReference,
  type ReadEvent,
  type Verdict,
} from './object-identity.ts';

/* CloudEvents 1.0 over HTTP. Those of Knative's ApiServerSource are understood, in both of its
 * modes; all others are ignored. The data names the object: Knative repeats its name in extensions,
 * which are not read. */

const REQUIRED = ['id', 'source', 'specversion', 'type'] as const;
const TYPE = /^dev\.knative\.apiserver\.(resource|ref)\.(?:add|update|delete)$/;

/** Reads an event in structured mode.
 * @param path  where it is in the body; '' for the whole body
 * @throws RequestProblem */
export function readStructured(value: unknown, path = ''): ReadEvent {
  if (!isFields(value))
    throw badField(path === '' ? 'body' : path, 'it must be a JSON object, one CloudEvent');
  const at = path === '' ? '' : `${path}.`;
  const { data, data_base64: base64, datacontenttype } = value;
  if (isThere(data) && isThere(base64))
    throw badField(`${at}data_base64`, 'an event has either data or data_base64, not both');
  return readEvent(value, at, (judge) => {
    const type = typeof datacontenttype === 'string' ? datacontenttype.toLowerCase() : '';
    if (isThere(datacontenttype) && !isJsonType((type.split(';')[0] ?? '').trim()))
      throw badField(`${at}datacontenttype`, 'data about a Kubernetes object must be JSON');
    if (!isThere(base64)) return judge(data, `${at}data`);
    const field = `${at}data_base64`;
    return judge(parseBase64(base64, field), field);
  });
}

/** The required attributes of binary mode that a request lacks, as headers: none for a CloudEvent
 * in binary mode, and all for a request that is none at all. */
export function missingHeaders(headers: HeaderValues): readonly string[] {
  return REQUIRED.map((name) => `ce-${name}`).filter((header) => headers[header] === undefined);
}

/** Reads an event in binary mode.
 * @param isJson  whether Content-Type says that the body is JSON
 * @throws RequestProblem */
export function readBinary(headers: HeaderValues, body: Buffer, isJson: boolean): ReadEvent {
  if (headers['ce-datacontenttype'] !== undefined)
    throw badField('ce-datacontenttype', 'it must not be there: Content-Type says it');
  const attributes = REQUIRED.map((name) => {
    const [value, ...others] = headers[`ce-${name}`] ?? [];
    if (others.length > 0) throw badField(`ce-${name}`, 'it is there more than once');
    return [name, value] as const;
  });
  return readEvent(Object.fromEntries(attributes), 'ce-', (judge) => {
    if (isJson) return judge(parseDocument(body, 'body'), 'body');
    throw badFormat('Content-Type', 'data about a Kubernetes object must be application/json');
  });
}

/** @param at         what the names of attributes begin with, for problems
 * @param judgeData  judges the data of an event of Knative */
function readEvent(
  attributes: Fields,
  at: string,
  judgeData: (judge: typeof judgeObject) => Verdict,
): ReadEvent {
  const [id = '', source = '', version, type = ''] = REQUIRED.map((name) => {
    const value = attributes[name];
    if (!isThere(value) || value === '')
      throw badField(at + name, 'it is missing: every CloudEvent has it');
    if (typeof value !== 'string') throw badField(at + name, 'it must be a string');
    return value;
  });
  if (version !== '1.0') throw badField(`${at}specversion`, 'only CloudEvents 1.0 are read');
  const eventId = eventIdOf(source, id);
  const shape = TYPE.exec(type)?.[1];
  if (shape === undefined) return { verdict: 'other-type', eventId };
  return { verdict: judgeData(shape === 'ref' ? judgeReference : judgeObject), eventId };
}

function isThere(value: unknown): boolean {
  return value !== undefined && value !== null;
}
