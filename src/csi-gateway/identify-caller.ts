import { X509Certificate } from 'node:crypto';
import type { ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { Code } from '../csi/status.ts';
import {
  findAllowedName,
  formatName,
  readAlternativeNames,
  type CertificateName,
} from './certificate-names.ts';

/** Why none of a caller's calls is forwarded. */
export interface CallerRefusal {
  readonly code: number;
  readonly details: string;
}

/** Who is at the other end of a connection. */
export interface Caller {
  /** For log lines: the name by which it may call, else all that it showed, else where it comes
   * from. */
  readonly name: string;
  /** undefined = it may call. */
  readonly refusal: CallerRefusal | undefined;
  /** What it showed; undefined where the door asks for none. */
  readonly certificate: X509Certificate | undefined;
  /** When that ends; Infinity without one. */
  readonly notAfterMs: number;
}

/** Recognises the caller behind a connection.
 * @param allowed  names of --tls-allowed-names; undefined = the door asks for no certificate (unix
 *                 socket, plaintext) */
export function identifyCaller(
  session: ServerHttp2Session,
  allowed: readonly CertificateName[] | undefined,
): Caller {
  const { socket } = session;
  const where =
    socket?.remoteAddress === undefined
      ? 'unix'
      : `${socket.remoteAddress}:${socket.remotePort ?? 0}`;
  const nobody = { name: where, certificate: undefined, notAfterMs: Infinity };
  if (allowed === undefined) return { ...nobody, refusal: undefined };
  const certificate = (socket as TLSSocket | undefined)?.getPeerX509Certificate();
  // The handshake asks for one and checks it; this is for the day on which somebody changes that.
  if (certificate === undefined)
    return {
      ...nobody,
      refusal: { code: Code.Unauthenticated, details: 'the caller shows no certificate' },
    };
  const shown = { certificate, notAfterMs: Date.parse(certificate.validTo) };
  const names = readAlternativeNames(certificate.subjectAltName);
  const name = findAllowedName(names, allowed);
  if (name !== undefined) return { ...shown, name: formatName(name), refusal: undefined };
  const listed =
    names.length === 0
      ? 'no name (subjectAltName is empty)'
      : names.map(formatName).join(', ').slice(0, 500);
  const details = `the client certificate has ${listed}, which this gateway's --tls-allowed-names does not list`;
  return {
    ...shown,
    name: `${listed} from ${where}`,
    refusal: { code: Code.PermissionDenied, details },
  };
}

/** Whether a certificate that was good at the handshake would be good now, with these authorities.
 */
export function isStillTrusted(
  certificate: X509Certificate,
  authoritiesPem: string,
  nowMs: number,
): boolean {
  const authorities = (
    authoritiesPem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? []
  )
    .map((pem) => new X509Certificate(pem))
    .filter(({ validTo }) => nowMs < Date.parse(validTo));
  let link: X509Certificate | undefined = certificate;
  // Intermediates came with the certificate; no chain in use is longer than a few.
  for (let length = 0; link !== undefined && length < 10; length += 1) {
    const one: X509Certificate = link;
    if (authorities.some((authority) => one.fingerprint256 === authority.fingerprint256))
      return true;
    if (
      authorities.some((authority) => one.checkIssued(authority) && one.verify(authority.publicKey))
    )
      return true;
    const issuer: X509Certificate | undefined = one.issuerCertificate;
    link =
      issuer !== undefined &&
      issuer.fingerprint256 !== one.fingerprint256 &&
      one.verify(issuer.publicKey)
        ? issuer
        : undefined;
  }
  return false;
}

/** For a caller whose certificate is good no more. It reached us, so it may know at once that
 * nothing was sent. */
export function revokeCaller(caller: Caller, reason: string): Caller {
  const details = `not forwarded: the client certificate of this connection ${reason}; connect again with a good one`;
  return { ...caller, refusal: { code: Code.Unavailable, details } };
}
