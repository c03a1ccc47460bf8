import { createHmac, timingSafeEqual } from 'node:crypto';
import type { HeaderValues } from '../parse/content-type.ts';
import { decodeBase64 } from '../parse/json-document.ts';
import { parseSecretLines } from './secret-lines.ts';
import type { Sender } from './sender.ts';

/* Signatures as Standard Webhooks describes them: HMAC-SHA256 of id, time and body. */

const KEY_BYTES = { min: 24, max: 64 };
/** How far the time of a request may be from ours. */
const TOLERANCE_SECONDS = 300;
/** Signatures of one request that are tried. */
const MAX_SIGNATURES = 16;
const HEADERS = ['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const;

export type SigningKeys = readonly { readonly key: Buffer; readonly sender: Sender }[];

/** What the headers of a signed request say. */
interface SignedHeaders {
  readonly id: string;
  readonly timestamp: string;
  readonly signatures: readonly string[];
}

/** @throws Error, which names the line and quotes nothing of it */
export function parseSigningKeys(text: string): SigningKeys {
  return parseSecretLines(text).map(({ secret, name, line }) => {
    if (/^wh[ps]k_/.test(secret))
      throw new Error(`line ${line}: ed25519 keys are not supported; use a whsec_ key`);
    const key = decodeBase64(secret.replace(/^whsec_/, ''));
    if (key === undefined) throw new Error(`line ${line}: the key is not base64`);
    if (key.length < KEY_BYTES.min || key.length > KEY_BYTES.max)
      throw new Error(
        `line ${line}: the key has ${key.length} bytes; use ${KEY_BYTES.min} to ${KEY_BYTES.max}`,
      );
    return { key, sender: { kind: 'signature', name } };
  });
}

/** Whether a request has anything of a signature. */
export function claimsSignature(headers: HeaderValues): boolean {
  return HEADERS.some((name) => headers[name] !== undefined);
}

/** Checks what can be checked before the body is there.
 * @returns the reason for the log if the signature can't be valid */
export function readSignedHeaders(headers: HeaderValues, nowMs: number): SignedHeaders | string {
  for (const name of HEADERS)
    if (headers[name]?.length !== 1 || headers[name][0] === '')
      return `${name} is missing, empty or repeated`;
  const [id = '', timestamp = '', signature = ''] = HEADERS.map((name) => headers[name]?.[0]);
  if (!/^[0-9]{1,12}$/.test(timestamp)) return 'webhook-timestamp is no time in Unix seconds';
  if (Math.abs(Math.floor(nowMs / 1000) - Number(timestamp)) > TOLERANCE_SECONDS)
    return `webhook-timestamp is more than ${TOLERANCE_SECONDS} s from the time here`;
  const signatures = signature
    .split(' ')
    .flatMap((part) => /^v1,(.+)$/.exec(part)?.[1] ?? [])
    .slice(0, MAX_SIGNATURES);
  return signatures.length === 0
    ? 'webhook-signature has no v1 signature'
    : { id, timestamp, signatures };
}

/** The sender with whose key the body was signed.
 * @param body  the bytes as they came
 * @returns undefined if there is none */
export function findSigner(
  { id, timestamp, signatures }: SignedHeaders,
  body: Buffer,
  keys: SigningKeys,
): Sender | undefined {
  // Node gives the bytes of headers as Latin-1.
  const head = Buffer.from(`${id}.${timestamp}.`, 'latin1');
  return keys.find(({ key }) => {
    const expected = createHmac('sha256', key).update(head).update(body).digest();
    // Each is compared, whether or not one before it was right.
    return signatures.filter((text) => isSame(text, expected)).length > 0;
  })?.sender;
}

function isSame(text: string, expected: Buffer): boolean {
  const given = decodeBase64(text);
  return given?.length === expected.length && timingSafeEqual(given, expected);
}
