import { type DescMessage, fromBinary } from '@bufbuild/protobuf';
import { STRIPPED } from '../runtime/loggable.ts';
import { shorten } from '../runtime/printable.ts';
import { collectSecretValues } from './redact.ts';
import { CANCELED_DETAILS, CsiError, DEADLINE_DETAILS } from './status.ts';

/** Replaces a text of the driver that can't be searched for secrets. */
export const WITHHELD = {
  short:
    "the driver's message is withheld, because a value of the call's secret is shorter than 4 " +
    "characters and can't be removed from it; see the driver's own log, or let jobs show it with " +
    '--show-messages-with-short-secrets',
  unsearchable:
    "the driver's message is withheld, because it can't be searched for values of the call's " +
    "secret; see the driver's own log",
} as const;

/** Shorter values stay in a text. Replacing them would garble it and show where they were. */
const MIN_CHARACTERS = 4;
/** Most values and lines to search for. More would block the process for too long. */
const MAX_VALUES = 500;
/** Most characters shown of a driver's text. With the words around it, it fits an event. */
const MAX_SHOWN_CHARACTERS = 800;

/** Replaces the secrets of a call in a text of the driver, since some drivers quote what they
 * received. Finds each value as it is, trimmed, and line by line. Finds it also as JSON (in JSON),
 * in percent-encoding, base64 (also within a longer text) and hex, in upper and lower case. */
export function redactSecrets(text: string, secrets: Iterable<string>): string {
  const values = new Set<string>();
  for (const secret of secrets)
    for (const value of [secret, trim(secret), ...secret.split(/[\r\n]/).map(trim)])
      // No encoding of a value is shorter than the value.
      if (value.length >= MIN_CHARACTERS && value.length <= text.length) values.add(value);
  if (values.size > MAX_VALUES) return WITHHELD.unsearchable;
  const folded = fold(text);
  const found: { readonly start: number; readonly end: number }[] = [];
  for (const form of new Set([...values].flatMap(formsOf).map(fold))) {
    if (form.length < MIN_CHARACTERS) continue;
    for (let start = folded.indexOf(form); start !== -1;) {
      const end = start + form.length;
      found.push({ start, end });
      start = folded.indexOf(form, end);
    }
  }
  let shown = '';
  let shownTo = -1;
  for (const { start, end } of found.sort((a, b) => a.start - b.start)) {
    if (start > shownTo) shown += text.slice(Math.max(0, shownTo), start) + STRIPPED;
    shownTo = Math.max(shownTo, end);
  }
  return shown + text.slice(Math.max(0, shownTo));
}

/** Encodes a value in the ways of drivers, such as Go's encoding/json, net/url, base64 and hex. */
function formsOf(value: string): readonly string[] {
  const bytes = Buffer.from(value, 'utf8');
  const json = JSON.stringify(value).slice(1, -1);
  const byGo = json.replaceAll(/[<>&]/g, (one) => `\\u00${toHex(one)}`);
  const component = encodeURIComponent(bytes.toString('utf8'));
  const query = component.replaceAll(/[!'()*]/g, (one) => `%${toHex(one)}`);
  return [
    value,
    ...[json, byGo].flatMap((form) => [form, JSON.stringify(form).slice(1, -1)]),
    component,
    query,
    query.replaceAll('%20', '+'),
    // url.PathEscape does not encode these.
    query.replaceAll(/%(24|26|2B|3A|3D|40)/g, decodeURIComponent),
    bytes.toString('hex'),
    ...[0, 1, 2].flatMap((before) => withinBase64(bytes, before)),
  ];
}

function toHex(character: string): string {
  return Buffer.from(character).toString('hex');
}

/** Encodes a value as base64 that begins `before` bytes (modulo 3) into a longer text. Omits the
 * digits that depend on the text around it. */
function withinBase64(bytes: Buffer, before: number): readonly string[] {
  const all = Buffer.concat([Buffer.alloc(before), bytes]);
  const from = Math.ceil((before * 8) / 6);
  const to = Math.floor((all.length * 8) / 6);
  return (['base64', 'base64url'] as const).map((each) => all.toString(each).slice(from, to));
}

const AROUND = /[\s"'`]/;

/** Removes white space and quotes at both ends. A RegExp for the end would take quadratic time. */
function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && AROUND.test(text[start] ?? '')) start += 1;
  while (end > start && AROUND.test(text[end - 1] ?? '')) end -= 1;
  return text.slice(start, end);
}

/** Converts only A to Z to lower case, which keeps the length. */
function fold(text: string): string {
  return text.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** Prepares a text of the driver to be shown: removes the secrets of the call, and cuts it.
 * Withholds it if a secret is too short to be removed.
 * @param o.showsShort  shows the text even so, with the short secrets in it */
export function redactDriverText(
  text: string,
  secrets: readonly string[],
  { showsShort }: { readonly showsShort: boolean },
): string {
  const lengths = secrets.map((secret) => trim(secret).length);
  // An empty value is no secret.
  const hasShort = lengths.some((length) => length > 0 && length < MIN_CHARACTERS);
  if (hasShort && !showsShort) return WITHHELD.short;
  // Cuts last, since a part of a secret at the end would not be found.
  return shorten(redactSecrets(text, secrets), MAX_SHOWN_CHARACTERS);
}

/** Texts of this process itself. */
const OWN_DETAILS: ReadonlySet<string> = new Set(['', CANCELED_DETAILS, DEADLINE_DETAILS]);

/** Removes secrets from the error of a call, for events, logs, Redis and the dashboard. Returns the
 * same error if the request has no secrets.
 * @param o.showsShort  as for redactDriverText */
export function redactError(
  error: CsiError,
  sent: { readonly schema: DescMessage; readonly request: Uint8Array },
  o: { readonly showsShort: boolean },
): CsiError {
  if (error.notForwarded || OWN_DETAILS.has(error.details)) return error;
  const details = redactDetails(error.details, sent, o);
  if (details === error.details) return error;
  const { code, method, driverSaid, notForwarded, isGatewayFull, draining } = error;
  // Omits the cause, which contains the driver's original text.
  return new CsiError({ code, method, driverSaid, notForwarded, isGatewayFull, draining, details });
}

function redactDetails(
  details: string,
  { schema, request }: { readonly schema: DescMessage; readonly request: Uint8Array },
  o: { readonly showsShort: boolean },
): string {
  let secrets: readonly string[];
  try {
    secrets = collectSecretValues(schema, fromBinary(schema, request));
  } catch {
    // The request came encoded and can't be decoded, so its secrets are unknown.
    return WITHHELD.unsearchable;
  }
  return redactDriverText(details, secrets, o);
}
