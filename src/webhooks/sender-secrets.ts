import { createHash } from 'node:crypto';
import { decodeBase64 } from './decode.ts';

/* The files of --webhook-token-file and --webhook-signing-key-file: a secret a line. */

/** Who sends events, by its credential. */
export interface Sender {
  readonly kind: 'certificate' | 'token' | 'signature' | 'network';
  /** The allowed name of the certificate, the name of the token or key, or the address. */
  readonly name: string;
}

/** Most lines of a file, more than any installation has senders. */
const MAX_LINES = 1_000;
/** Fewest characters of a token. */
const MIN_LENGTH = 16;
const KEY_BYTES = { min: 24, max: 64 };

/** The names of senders by the digests of their tokens. */
export type BearerTokens = ReadonlyMap<string, string>;

export type SigningKeys = readonly { readonly key: Buffer; readonly sender: Sender }[];

/** Reads a file with one secret a line, then optionally the name of the sender. Skips empty lines
 * and lines that begin with #. A sender without a name gets the first eight hex digits of the
 * secret's SHA-256 as its name.
 * @param use  converts a secret; throws an Error that quotes nothing of it
 * @throws Error, which names the line and quotes nothing of it */
function parseLines<T>(text: string, use: (secret: string, name: string) => T): readonly T[] {
  const used = text.split('\n').flatMap((raw, index) => {
    const trimmed = raw.trim();
    if (trimmed === '' || trimmed.startsWith('#')) return [];
    try {
      const [secret = '', name, ...more] = trimmed.split(/\s+/);
      if (more.length > 0 || (name !== undefined && !/^[\w.:/@-]{1,64}$/.test(name)))
        throw new Error('write a secret, and the name of its sender without spaces');
      return [use(secret, name ?? digestOf(secret).slice(0, 8))];
    } catch (cause) {
      throw new Error(`line ${index + 1}: ${(cause as Error).message}`, { cause });
    }
  });
  if (used.length === 0) throw new Error('it has no line with a secret');
  if (used.length > MAX_LINES) throw new Error(`it has more than ${MAX_LINES} lines`);
  return used;
}

/** @throws Error, which names the line and quotes nothing of it */
export function parseTokens(text: string): BearerTokens {
  const lines = parseLines(text, (secret, name) => {
    if (secret.length < MIN_LENGTH)
      throw new Error(`the token is shorter than ${MIN_LENGTH} characters`);
    if (!/^[\x21-\x7e]+$/.test(secret))
      throw new Error('the token has characters that no header can carry');
    return [digestOf(secret), name] as const;
  });
  return new Map(lines);
}

/** Finds the sender of an Authorization header, by the token after Bearer, or by the password after
 * Basic: a sender that takes only a URL, such as Knative's ApiServerSource, sends Basic for
 * https://any:TOKEN@host/. Looks up the token's digest, so the time says nothing about the tokens.
 * @returns undefined if no token matches */
export function findToken(authorization: string, tokens: BearerTokens): Sender | undefined {
  const [, scheme = '', value = ''] = /^(bearer|basic) +(\S+)$/i.exec(authorization) ?? [];
  const isBasic = scheme.toLowerCase() === 'basic';
  const password = /:(.*)$/s.exec(Buffer.from(value, 'base64').toString())?.[1] ?? '';
  const name = tokens.get(digestOf(isBasic ? password : value));
  return name === undefined ? undefined : { kind: 'token', name };
}

function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** @throws Error, which names the line and quotes nothing of it */
export function parseSigningKeys(text: string): SigningKeys {
  return parseLines(text, (secret, name) => {
    if (/^wh[ps]k_/.test(secret))
      throw new Error('ed25519 keys are not supported; use a whsec_ key');
    const key = decodeBase64(secret.replace(/^whsec_/, ''));
    if (key === undefined) throw new Error('the key is not base64');
    if (key.length < KEY_BYTES.min || key.length > KEY_BYTES.max)
      throw new Error(`the key has ${key.length} bytes; use ${KEY_BYTES.min} to ${KEY_BYTES.max}`);
    return { key, sender: { kind: 'signature', name } };
  });
}
