import { createHash, timingSafeEqual } from 'node:crypto';
import { decodeBase64 } from './decode.ts';

/* The files of --webhook-token-file and --webhook-signing-key-file: a secret a line. */

/** Who sends events, by what it has shown. Limits count by it. */
export interface Sender {
  readonly kind: 'certificate' | 'token' | 'signature' | 'network';
  /** The allowed name of the certificate, the name of the token or key, or the address. */
  readonly name: string;
}

/** A text that no other sender has. */
export function senderId({ kind, name }: Sender): string {
  return `${kind} ${name}`;
}

/** A secret of a file, the sender that it belongs to, and its line. */
interface SecretLine {
  readonly secret: string;
  readonly name: string;
  readonly line: number;
}

/** Lines of one file: more than any installation has senders. */
const MAX_LINES = 1_000;
/** Characters of a token. */
const MIN_LENGTH = 16;
const KEY_BYTES = { min: 24, max: 64 };

/** The tokens of a file, by digest. */
export type BearerTokens = ReadonlyMap<
  string,
  { readonly digest: Buffer; readonly sender: Sender }
>;

export type SigningKeys = readonly { readonly key: Buffer; readonly sender: Sender }[];

/** Reads a file with one secret a line, each followed by the name of its sender if wanted; empty
 * lines and those that begin with # are skipped. Without a name, the sender is called by eight hex
 * digits of the secret's SHA-256.
 * @throws Error, which names the line and quotes nothing of it */
function parseSecretLines(text: string): readonly SecretLine[] {
  const lines = text.split('\n').flatMap((raw, index) => {
    const trimmed = raw.trim();
    if (trimmed === '' || trimmed.startsWith('#')) return [];
    const [secret = '', name, ...more] = trimmed.split(/\s+/);
    const line = index + 1;
    if (more.length > 0 || (name !== undefined && !/^[\w.:/@-]{1,64}$/.test(name)))
      throw new Error(`line ${line}: write a secret, and the name of its sender without spaces`);
    const digest = createHash('sha256').update(secret).digest('hex').slice(0, 8);
    return [{ secret, name: name ?? digest, line }];
  });
  if (lines.length === 0) throw new Error('it has no line with a secret');
  if (lines.length > MAX_LINES) throw new Error(`it has more than ${MAX_LINES} lines`);
  return lines;
}

/** @throws Error, which names the line and quotes nothing of it */
export function parseTokens(text: string): BearerTokens {
  return new Map(
    parseSecretLines(text).map(({ secret, name, line }) => {
      if (secret.length < MIN_LENGTH)
        throw new Error(`line ${line}: the token is shorter than ${MIN_LENGTH} characters`);
      if (!/^[\x21-\x7e]+$/.test(secret))
        throw new Error(`line ${line}: the token has characters that no header can carry`);
      const digest = digestOf(secret);
      return [digest.toString('hex'), { digest, sender: { kind: 'token', name } }];
    }),
  );
}

/** The sender whose token an Authorization header has: after Bearer, or as password after Basic. A
 * sender that takes only a URL, such as Knative's ApiServerSource, sends the latter for
 * https://any:TOKEN@host/. What is looked up is the token's digest, so the time says nothing about
 * the tokens.
 * @returns undefined without such a token */
export function findToken(authorization: string, tokens: BearerTokens): Sender | undefined {
  const [, scheme = '', value = ''] = /^(bearer|basic) +(\S+)$/i.exec(authorization) ?? [];
  const token = scheme.toLowerCase() === 'basic' ? passwordIn(value) : value;
  const digest = digestOf(token);
  const known = tokens.get(digest.toString('hex'));
  return known !== undefined && timingSafeEqual(known.digest, digest) ? known.sender : undefined;
}

/** The password in the value of Basic credentials; '' without one. */
function passwordIn(value: string): string {
  const [, ...password] = Buffer.from(value, 'base64').toString().split(':');
  return password.join(':');
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
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
