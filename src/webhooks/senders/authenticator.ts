import type { IncomingMessage } from 'node:http';
import { TLSSocket } from 'node:tls';
import {
  type CertificateName,
  findAllowedName,
  formatName,
  readAlternativeNames,
} from '../../runtime/certificate-names.ts';
import type { Clock } from '../../runtime/clock.ts';
import { networkOf } from '../../runtime/network-of.ts';
import { RequestProblem } from '../problem.ts';
import { type BearerTokens, findToken } from './bearer-tokens.ts';
import type { Sender } from './sender.ts';
import { claimsSignature, findSigner, readSignedHeaders, type SigningKeys } from './signatures.ts';

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
    const isSigned = signingKeys !== undefined && claimsSignature(headers);
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
    if (this.isOpen) return { kind: 'network', name: networkOf(socket.remoteAddress ?? '') };
    const name = this.#certificateName(socket);
    if (name !== undefined) return { kind: 'certificate', name };
    const { authorization = [] } = headersDistinct;
    if (tokens === undefined || authorization.length !== 1) return undefined;
    return findToken(authorization[0] ?? '', tokens.current);
  }

  /** The allowed name of a verified certificate. */
  #certificateName(socket: unknown): string | undefined {
    const { allowedNames, clock } = this.#options;
    if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
    const certificate = socket.getPeerX509Certificate();
    if (certificate === undefined || Date.parse(certificate.validTo) <= clock.nowMs())
      return undefined;
    const name = findAllowedName(readAlternativeNames(certificate.subjectAltName), allowedNames);
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
