import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { peerCertificate } from '../runtime/certificate-names.ts';
import { decodeBase64, type HeaderValues } from './decode.ts';
import { RequestProblem } from './problem.ts';
import { type BearerTokens, findToken, type Sender, type SigningKeys } from './sender-secrets.ts';

/** How far the time of a request may be from ours. */
const TOLERANCE_SECONDS = 300;
const MAX_SIGNATURES = 16;
const HEADERS = ['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const;

/** What senders may show. */
export interface Credentials {
  /** Undefined where senders have none. The files may change. */
  readonly tokens: { readonly current: BearerTokens } | undefined;
  readonly signingKeys: { readonly current: SigningKeys } | undefined;
  /** Names of client certificates; empty where senders have none. */
  readonly allowedNames: readonly string[];
}

/** What the headers of a request say about its sender: who it is, or how to find that out by the
 * body. */
export type HeaderVerdict = Sender | ((body: Buffer) => Sender);

/** Finds out who sends a request. Any one of the credentials that are configured is enough; a
 * signature that is shown is checked in any case. */
export class Authenticator {
  readonly #credentials: Credentials;
  /** What a sender can show, for its error; '' where anybody may send. */
  readonly #wanted: string;

  constructor(credentials: Credentials) {
    const { tokens, signingKeys, allowedNames } = credentials;
    this.#credentials = credentials;
    this.#wanted = [
      ...(tokens === undefined ? [] : ['Authorization: Bearer with a token']),
      ...(allowedNames.length === 0 ? [] : ['a client certificate with an allowed name']),
      ...(signingKeys === undefined
        ? []
        : ['a Standard Webhooks signature, its webhook-timestamp in seconds and not old']),
    ].join(', or ');
  }

  /** @throws RequestProblem for a request without a valid credential */
  readHeaders({ headersDistinct: headers, socket }: IncomingMessage): HeaderVerdict {
    const { signingKeys } = this.#credentials;
    const sender = this.#findSender(headers, socket);
    if (signingKeys !== undefined && HEADERS.some((name) => headers[name] !== undefined)) {
      const signed = readSignedHeaders(headers, Date.now());
      if (typeof signed === 'string') throw this.#refuse(signed);
      return (body) => {
        const signer = findSigner(signed, body, signingKeys.current);
        if (signer === undefined) throw this.#refuse('no key matches webhook-signature');
        return sender ?? signer;
      };
    }
    if (sender !== undefined) return sender;
    // The signature of the certificate is good, but no name in it is allowed.
    if (socket instanceof TLSSocket && socket.authorized)
      throw new RequestProblem(
        403,
        'no name in the client certificate is in --webhook-allowed-names',
        'certificate',
      );
    throw this.#refuse('no valid credential');
  }

  #findSender(headers: HeaderValues, socket: Socket): Sender | undefined {
    const { tokens, allowedNames } = this.#credentials;
    if (this.#wanted === '') return { kind: 'network', name: socket.remoteAddress ?? '' };
    const name = findCertificateName(socket, allowedNames);
    if (name !== undefined) return { kind: 'certificate', name };
    const { authorization = [] } = headers;
    if (tokens === undefined || authorization.length !== 1) return undefined;
    return findToken(authorization[0] ?? '', tokens.current);
  }

  /** @param reason  for the log alone */
  #refuse(reason: string): RequestProblem {
    return new RequestProblem(401, `send ${this.#wanted}`, 'Authorization', reason);
  }
}

function findCertificateName(socket: Socket, allowed: readonly string[]): string | undefined {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
  const { names, endMs } = peerCertificate(socket);
  return endMs > Date.now() ? names.find((name) => allowed.includes(name)) : undefined;
}

/* Signatures as Standard Webhooks describes them: HMAC-SHA256 of id, time and body. */

interface SignedHeaders {
  readonly id: string;
  readonly timestamp: string;
  readonly signatures: readonly string[];
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
