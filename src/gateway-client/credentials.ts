import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import {
  checkServerIdentity,
  type ConnectionOptions,
  createSecureContext,
  type PeerCertificate,
} from 'node:tls';
import type { Address } from '../runtime/address.ts';
import { type Flags, UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import {
  areTlsFilesNamed,
  type TlsFiles,
  type TlsSource,
  type WatchedTlsFiles,
  watchTlsFiles,
} from '../runtime/tls-files.ts';
import type { gatewayClientFlags } from './flags.ts';

/** Certificates for calls to a gateway on TCP, and the name that the gateway must have. */
export interface ClientTls {
  readonly source: TlsSource;
  /** Name or IP address that the gateway's certificate must contain; '' for the host of the
   * address. */
  readonly serverName: string;
}

type TlsFlags = Pick<
  Flags<typeof gatewayClientFlags>,
  'gatewayTlsCa' | 'gatewayTlsCert' | 'gatewayTlsKey' | 'gatewayTlsServerName'
>;

/** Reads and watches the TLS files that the flags name; undefined if there are none.
 * @throws UsageError if only some of the files are named, or one can't be used */
export async function openClientTls(
  flags: TlsFlags,
  log: Logger,
): Promise<(ClientTls & { readonly source: WatchedTlsFiles }) | undefined> {
  const files = checkTlsFlags(flags);
  if (files === undefined) return undefined;
  const source = await watchTlsFiles({ files, log });
  return { source, serverName: flags.gatewayTlsServerName };
}

/** @returns the files that the flags name; undefined if there are none
 * @throws UsageError if only some of them are named */
export function checkTlsFlags(flags: TlsFlags): TlsFiles | undefined {
  const files = {
    ca: { flag: 'gateway-tls-ca', path: flags.gatewayTlsCa },
    cert: { flag: 'gateway-tls-cert', path: flags.gatewayTlsCert },
    key: { flag: 'gateway-tls-key', path: flags.gatewayTlsKey },
  };
  if (areTlsFilesNamed(files)) return files;
  if (flags.gatewayTlsServerName === '') return undefined;
  throw new UsageError('--gateway-tls-server-name is for mutual TLS: give --gateway-tls-ca too');
}

/** Makes the options of a TLS connection, with the current certificates; undefined for plaintext.
 */
export function tlsOptions(
  address: Address,
  tls: ClientTls | undefined,
): ConnectionOptions | undefined {
  if (tls === undefined || address.kind === 'unix') return undefined;
  const { ca, cert, key } = tls.source.current;
  const expected = tls.serverName === '' ? address.host : tls.serverName;
  return {
    secureContext: createSecureContext({ ca, cert, key, minVersion: 'TLSv1.3' }),
    rejectUnauthorized: true,
    checkServerIdentity: (_host, certificate) => checkIdentity(expected, certificate),
    // The SNI. RFC 6066 section 3 forbids IP addresses there, so they become a placeholder. The
    // certificate is checked against `expected`.
    servername: isIP(expected) === 0 ? expected : 'sutler-gateway',
  };
}

/** Returns an error if the certificate is not the expected host's. IP addresses are compared as
 * addresses, because tls.checkServerIdentity of Node 22 compares IPv6 addresses as names. */
function checkIdentity(expected: string, certificate: PeerCertificate): Error | undefined {
  if (isIP(expected) !== 0 && new X509Certificate(certificate.raw).checkIP(expected) !== undefined)
    return undefined;
  return checkServerIdentity(expected, certificate);
}
