import { isUtf8 } from 'node:buffer';
import { badField, badFormat } from './problem.ts';

/** Most lists and objects in a document: ten times as many as a thousand events have. To parse a
 * body that consists only of brackets takes a second, and memory of a hundred times its size. */
const MAX_OPENED = 100_000;

/** Parses one JSON document.
 * @param field  what it is, for the problem: `body`, or a path in it
 * @throws RequestProblem, which names the place and quotes nothing */
export function parseDocument(bytes: Buffer, field: string): unknown {
  if (bytes.length === 0)
    throw badField(
      field,
      'it is empty: send the event as JSON (in Argo Events, give the HTTP trigger a payload)',
    );
  if (!isUtf8(bytes)) throw badField(field, 'it is not valid UTF-8');
  let opened = 0;
  for (let at = 0; at < bytes.length; at += 1)
    if (bytes[at] === 0x5b || bytes[at] === 0x7b) opened += 1;
  if (opened > MAX_OPENED) throw badField(field, `it has more than ${MAX_OPENED} brackets`);
  try {
    return JSON.parse(bytes.toString('utf8').replace(/^\uFEFF/, '')) as unknown;
  } catch (error) {
    const place = /at position (\d+)/.exec(String(error))?.[1];
    const where = place === undefined ? '' : ` from character ${place} on`;
    throw badField(field, `it is not JSON${where}: send one JSON document for each request`);
  }
}

/** Decodes base64 strictly: Node's decoder skips unknown characters.
 * @returns undefined if the text is not base64 */
export function decodeBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}

/** Values of each header, in lower case, as Node keeps them apart. */
export type HeaderValues = Readonly<Record<string, readonly string[] | undefined>>;

/** How to read the body of a request. */
export type BodyFormat =
  | 'batch'
  | 'structured'
  /** One JSON document. The other headers say whether it is the data of a CloudEvent. */
  | 'json'
  /** Something else, which may be the data of a CloudEvent of another type. */
  | 'other';

/** Chooses how to read the body, by Content-Type. Without a Content-Type the body is read as JSON,
 * because Argo Events sends none.
 * @throws RequestProblem for formats that are not supported */
export function bodyFormat(headers: HeaderValues): BodyFormat {
  checkEncoding(headers);
  const values = headers['content-type'] ?? [];
  if (values.length > 1) throw badField('Content-Type', 'it is there more than once');
  const text = (values[0] ?? '').toLowerCase();
  const type = (text.split(';')[0] ?? '').trim();
  if (type === '') return 'json';
  const charsets = [...text.matchAll(/;\s*charset\s*=\s*("?)([^";]*)\1/g)].map((match) => match[2]);
  if (charsets.some((charset) => !/^\s*utf-?8\s*$/.test(charset ?? '')))
    throw badFormat('Content-Type', 'only the charset UTF-8 is read');
  if (type === 'application/cloudevents+json') return 'structured';
  if (type === 'application/cloudevents-batch+json') return 'batch';
  return isJsonType(type) ? 'json' : 'other';
}

function checkEncoding(headers: HeaderValues): void {
  const codings = headers['content-encoding'] ?? [];
  if (codings.some((coding) => !/^(?:identity)?$/i.test(coding.trim())))
    throw badFormat('Content-Encoding', 'send the body as it is, without compression');
}

/** Whether a media type without parameters, in lower case, is one of JSON. */
export function isJsonType(type: string): boolean {
  return /^[^/]+\/(?:json|.+\+json)$/.test(type);
}

/** Decodes the value of a CloudEvents header: removes quotes, then decodes one round of
 * percent-encoding. Senders also write UTF-8 without encoding it, which Node gives as Latin-1.
 * @see CloudEvents HTTP Protocol Binding 3.1.3.2
 * @param header  for the problem
 * @throws RequestProblem for a bare % and for bytes that are not UTF-8 */
export function decodeHeaderValue(value: string, header: string): string {
  const isQuoted = value.length >= 2 && value.startsWith('"') && value.endsWith('"');
  const text = isQuoted ? value.slice(1, -1).replace(/\\(.)/g, '$1') : value;
  if (/%(?![0-9A-Fa-f]{2})/.test(text))
    throw badField(header, 'it has a % without two hex digits after it: write %25');
  const latin1 = text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  const bytes = Buffer.from(latin1, 'latin1');
  if (!isUtf8(bytes)) throw badField(header, 'it is not valid UTF-8');
  return bytes.toString('utf8');
}
