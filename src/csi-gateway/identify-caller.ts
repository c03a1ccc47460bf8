import { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { Code } from '../csi/status.ts';
import { PEM_CERTIFICATE } from '../runtime/tls-files.ts';
import {
  type CertificateName,
  findAllowedName,
  formatName,
  readAlternativeNames,
} from '../runtime/certificate-names.ts';

/** The peer of a connection. */
export interface Caller {
  /** For log lines: the allowed name of its certificate; if there is none, all its names; without a
   * certificate, its address. */
  readonly name: string;
  /** The status that all its calls get; undefined if it may call. */
  readonly refusal: { readonly code: number; readonly details: string } | undefined;
  /** undefined if the listener asks for none. */
  readonly certificate: X509Certificate | undefined;
  /** When the certificate expires, Unix milliseconds; Infinity without one. */
  readonly notAfterMs: number;
}

/** Identifies the peer of a connection.
 * @param allowed  names of --tls-allowed-names; undefined if the listener asks for no certificate
 *                 (unix socket, plaintext) */
export function identifyCaller(
  socket: Socket,
  allowed: readonly CertificateName[] | undefined,
): Caller {
  const { remoteAddress: host, remotePort } = socket;
  const address = host === undefined ? 'unix' : `${host}:${remotePort ?? 0}`;
  const anonymous = { name: address, certificate: undefined, notAfterMs: Infinity };
  if (allowed === undefined) return { ...anonymous, refusal: undefined };
  const certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined;
  // The TLS handshake requires a certificate. This check remains in case those options change.
  if (certificate === undefined)
    return refuse(anonymous, Code.Unauthenticated, 'the caller shows no certificate');
  const shown = { certificate, notAfterMs: Date.parse(certificate.validTo) };
  const names = readAlternativeNames(certificate.subjectAltName);
  const name = findAllowedName(names, allowed);
  if (name !== undefined) return { ...shown, name: formatName(name), refusal: undefined };
  const allNames = names.map(formatName).join(', ').slice(0, 500);
  const listed = allNames === '' ? 'no name (subjectAltName is empty)' : allNames;
  const details =
    `the client certificate has ${listed}, ` +
    `which this gateway's --tls-allowed-names does not list`;
  return refuse({ ...shown, name: `${listed} from ${address}` }, Code.PermissionDenied, details);
}

/** Whether a certificate that passed the handshake would pass it now, with these authorities. */
export function isStillTrusted(
  certificate: X509Certificate,
  authoritiesPem: string,
  nowMs: number,
): boolean {
  const authorities = (authoritiesPem.match(PEM_CERTIFICATE) ?? [])
    .map((pem) => new X509Certificate(pem))
    .filter(({ validTo }) => nowMs < Date.parse(validTo));
  let link: X509Certificate | undefined = certificate;
  // Follow the intermediates that the caller sent, at most ten certificates.
  for (let length = 0; link !== undefined && length < 10; length += 1) {
    if (isSignedByAny(link, authorities)) return true;
    link = verifiedIssuer(link);
  }
  return false;
}

/** Whether a certificate is one of the authorities or is signed by one. */
function isSignedByAny(link: X509Certificate, authorities: readonly X509Certificate[]): boolean {
  return authorities.some(
    (authority) =>
      link.fingerprint256 === authority.fingerprint256 ||
      (link.checkIssued(authority) && link.verify(authority.publicKey)),
  );
}

/** The next certificate of the chain; undefined if it is missing, self-signed or no signer. */
function verifiedIssuer(link: X509Certificate): X509Certificate | undefined {
  const issuer: X509Certificate | undefined = link.issuerCertificate;
  if (issuer === undefined || issuer.fingerprint256 === link.fingerprint256) return undefined;
  return link.verify(issuer.publicKey) ? issuer : undefined;
}

/** The same caller with a certificate that is no longer valid: its calls are refused, not
 * forwarded, so that it knows at once that nothing was sent. */
export function revokeCaller(caller: Caller, reason: string): Caller {
  const details =
    `not forwarded: the client certificate of this connection ${reason}; ` +
    'connect again with a good one';
  return refuse(caller, Code.Unavailable, details);
}

function refuse(caller: Omit<Caller, 'refusal'>, code: number, details: string): Caller {
  return { ...caller, refusal: { code, details } };
}
