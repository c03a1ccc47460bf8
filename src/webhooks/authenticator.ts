import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { peerCertificate } from '../runtime/certificate-names.ts';
import { decodeBase64, type HeaderValues } from './decode.ts';
import { RequestProblem } from './problem.ts';
import { BodyReceiver } from './receive-body.ts';
import { type BearerTokens, findToken, type Sender, type SigningKeys } from './sender-secrets.ts';

const MAX_BODY_BYTES = 2 * 1024 * 1024;
/** Memory for all bodies that are being received. */
const MAX_MEMORY_BYTES = 32 * 1024 * 1024;
/** The same for signed bodies, whose sender is known only after the whole body. */
const MAX_UNVERIFIED_BYTES = 16 * 1024 * 1024;
/** How far the time of a request may be from ours. */
const TOLERANCE_SECONDS = 300;
const MAX_SIGNATURES = 16;
const HEADERS = ['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const;

/** The credentials that senders may use. */
export interface Credentials {
  /** Undefined if no flag names such a file. The files may change. */
  readonly tokens: { readonly current: BearerTokens } | undefined;
  readonly signingKeys: { readonly current: SigningKeys } | undefined;
  /** Names of client certificates; empty if senders have none. */
  readonly allowedNames: readonly string[];
}

/** A request whose sender is allowed. */
export interface AllowedRequest {
  readonly sender: Sender;
  readonly body: Buffer;
  /** Of a signed request: the same in each repetition. */
  readonly deliveryId?: string;
}

/** Receives requests, and finds out who sends them. One of the configured credentials is enough; a
 * signature is checked even beside another credential. */
export class Authenticator {
  readonly #credentials: Credentials;
  /** The credentials to use, for error messages; '' if anybody may send. */
  readonly #wanted: string;
  readonly #bodies = new BodyReceiver(MAX_MEMORY_BYTES);
  readonly #unverified = new BodyReceiver(MAX_UNVERIFIED_BYTES);

  constructor(credentials: Credentials) {
    const { tokens, signingKeys, allowedNames } = credentials;
    this.#credentials = credentials;
    this.#wanted = [
      ...(tokens === undefined ? [] : ['Authorization: Bearer with a token']),
      ...(allowedNames.length === 0 ? [] : ['a client certificate with an allowed name']),
      ...(signingKeys === undefined
        ? []
        : ['a Standard Webhooks signature with a recent webhook-timestamp in seconds']),
    ].join(', or ');
  }

  /** Receives the body, if the headers have a credential.
   * @throws RequestProblem for a request without a valid credential */
  async receive(request: IncomingMessage): Promise<AllowedRequest> {
    const { headersDistinct: headers, socket } = request;
    const { signingKeys } = this.#credentials;
    const sender = this.#findSender(headers, socket);
    if (signingKeys !== undefined && HEADERS.some((name) => headers[name] !== undefined)) {
      const body = await this.#unverified.receive(request, MAX_BODY_BYTES);
      const signer = verifySignature(headers, body, signingKeys.current, Date.now());
      if (typeof signer === 'string') throw this.#refuse(signer);
      const deliveryId = `webhook ${headers['webhook-id']?.[0]}`;
      return { sender: sender ?? signer, body, deliveryId };
    }
    if (sender !== undefined)
      return { sender, body: await this.#bodies.receive(request, MAX_BODY_BYTES) };
    // The certificate is valid, but none of its names is allowed.
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

  /** @param reason  only for the log */
  #refuse(reason: string): RequestProblem {
    return new RequestProblem(401, `send ${this.#wanted}`, 'Authorization', reason);
  }
}

function findCertificateName(socket: Socket, allowed: readonly string[]): string | undefined {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
  const { names, endMs } = peerCertificate(socket);
  return endMs > Date.now() ? names.find((name) => allowed.includes(name)) : undefined;
}

/** Verifies a signature as Standard Webhooks describes it: HMAC-SHA256 of id, time and body.
 * @param body  the bytes as they arrived
 * @returns the sender whose key signed the body; a string says, for the log, why there is none */
export function verifySignature(
  headers: HeaderValues,
  body: Buffer,
  keys: SigningKeys,
  nowMs: number,
): Sender | string {
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
  // Node gives the bytes of headers as Latin-1.
  const head = Buffer.from(`${id}.${timestamp}.`, 'latin1');
  const signer = keys.find(({ key }) => {
    const expected = createHmac('sha256', key).update(head).update(body).digest();
    // Compares all signatures, so that the time does not depend on which one is right.
    return signatures.filter((text) => isSame(text, expected)).length > 0;
  });
  return signer?.sender ?? 'no key matches a v1 signature in webhook-signature';
}

function isSame(text: string, expected: Buffer): boolean {
  const given = decodeBase64(text);
  return given?.length === expected.length && timingSafeEqual(given, expected);
}
