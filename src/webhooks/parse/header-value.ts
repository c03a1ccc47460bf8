import { isUtf8 } from 'node:buffer';
import { badField } from '../problem.ts';

/** Decodes the value of a CloudEvents header: quotes are removed, then one round of
 * percent-encoding is decoded. Senders also write UTF-8 without encoding it, which Node gives as
 * Latin-1.
 * @see CloudEvents HTTP Protocol Binding 3.1.3.2
 * @param header  for the problem
 * @throws RequestProblem for a bare % and for bytes that are not UTF-8 */
export function decodeHeaderValue(value: string, header: string): string {
  const isQuoted = value.length >= 2 && value.startsWith('"') && value.endsWith('"');
  const text = isQuoted ? value.slice(1, -1).replace(/\\(.)/g, '$1') : value;
  if (/%(?![0-9A-Fa-f]{2})/.test(text))
    throw badField(header, 'it has a % that two hex digits do not follow: write %25');
  const latin1 = text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  const bytes = Buffer.from(latin1, 'latin1');
  if (!isUtf8(bytes)) throw badField(header, 'it is not valid UTF-8');
  return bytes.toString('utf8');
}
