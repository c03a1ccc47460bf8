import { createHash, timingSafeEqual } from 'node:crypto';
import { parseSecretLines } from './secret-lines.ts';
import type { Sender } from './sender.ts';

const MIN_LENGTH = 16;

/** The tokens of a file, by digest. */
export type BearerTokens = ReadonlyMap<
  string,
  { readonly digest: Buffer; readonly sender: Sender }
>;

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
