import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { TLSSocket } from 'node:tls';
import {
  type CertificateName,
  findAllowedName,
  formatName,
  peerCertificate,
} from '../runtime/certificate-names.ts';
import type { Clock } from '../runtime/clock.ts';
import { decodeBase64, type HeaderValues } from './decode.ts';
import { RequestProblem } from './problem.ts';
import { type BearerTokens, findToken, type Sender, type SigningKeys } from './sender-secrets.ts';

/** How far the time of a request may be from ours. */
const TOLERANCE_SECONDS = 300;
const MAX_SIGNATURES = 16;
const HEADERS = ['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const;

export interface AuthenticatorOptions {
  /** undefined where senders have none. The files may change. */
  readonly tokens: { readonly current: BearerTokens } | undefined;
  readonly signingKeys: { readonly current: SigningKeys } | undefined;
  /** Names of client certificates; empty where senders have none. */
  readonly allowedNames: readonly CertificateName[];
  readonly clock: Clock;
}

/** What the headers of a request say about its sender: who it is, or that the body has to be
 * verified first. */
export type HeaderVerdict =
  | { readonly kind: 'known'; readonly sender: Sender }
  | { readonly kind: 'signed'; readonly verify: (body: Buffer) => Sender };

/** Finds out who sends a request. Any one of the credentials that are configured is enough; a
 * signature that is shown is checked in any case. */
export class Authenticator {
  readonly #options: AuthenticatorOptions;
  /** What a sender can show, for its error. */
  readonly #wanted: string;

  constructor(options: AuthenticatorOptions) {
    const { tokens, signingKeys, allowedNames } = options;
    this.#options = options;
    this.#wanted = [
      ...(tokens === undefined ? [] : ['Authorization: Bearer with a token']),
      ...(allowedNames.length === 0 ? [] : ['a client certificate with an allowed name']),
      ...(signingKeys === undefined
        ? []
        : ['a Standard Webhooks signature, its webhook-timestamp in seconds and not old']),
    ].join(', or ');
  }

  /** Whether anybody may send. */
  get isOpen(): boolean {
    return this.#wanted === '';
  }

  /** @throws RequestProblem for a request without a valid credential */
  readHeaders(request: IncomingMessage): HeaderVerdict {
    const { signingKeys, clock } = this.#options;
    const { headersDistinct: headers } = request;
    const isSigned =
      signingKeys !== undefined && HEADERS.some((name) => headers[name] !== undefined);
    const sender = this.#findSender(request);
    if (!isSigned && sender !== undefined) return { kind: 'known', sender };
    if (!isSigned) throw this.#refuse(request);
    const signed = readSignedHeaders(headers, clock.nowMs());
    if (typeof signed === 'string') throw this.#refuse(request, signed);
    return {
      kind: 'signed',
      verify: (body) => {
        const signer = findSigner(signed, body, signingKeys.current);
        if (signer === undefined) throw this.#refuse(request, 'no key matches webhook-signature');
        return sender ?? signer;
      },
    };
  }

  #findSender({ headersDistinct, socket }: IncomingMessage): Sender | undefined {
    const { tokens } = this.#options;
    if (this.isOpen) return { kind: 'network', name: socket.remoteAddress ?? '' };
    const name = this.#certificateName(socket);
    if (name !== undefined) return { kind: 'certificate', name };
    const { authorization = [] } = headersDistinct;
    if (tokens === undefined || authorization.length !== 1) return undefined;
    return findToken(authorization[0] ?? '', tokens.current);
  }

  #certificateName(socket: unknown): string | undefined {
    const { allowedNames, clock } = this.#options;
    if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
    const certificate = peerCertificate(socket);
    if (certificate === undefined || certificate.endMs <= clock.nowMs()) return undefined;
    const name = findAllowedName(certificate.names, allowedNames);
    return name === undefined ? undefined : formatName(name);
  }

  #refuse({ socket }: IncomingMessage, reason = 'no valid credential'): RequestProblem {
    // The signature of the certificate is good, but no name in it is allowed.
    const isForbidden =
      reason === 'no valid credential' && socket instanceof TLSSocket && socket.authorized;
    if (isForbidden)
      return new RequestProblem(
        {
          status: 403,
          detail: 'no name in the client certificate is in --webhook-allowed-names',
          field: 'certificate',
        },
        'no allowed name',
      );
    return new RequestProblem(
      { status: 401, detail: `send ${this.#wanted}`, field: 'Authorization' },
      reason,
    );
  }
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
