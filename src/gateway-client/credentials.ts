import { X509Certificate } from 'node:crypto';
import { credentials, type ChannelCredentials, type ChannelOptions } from '@grpc/grpc-js';
import { isIP } from 'node:net';
import { checkServerIdentity, createSecureContext, type PeerCertificate } from 'node:tls';
import { isLoopback, type Address } from '../runtime/address.ts';
import type { Clock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { watchTlsFiles, type TlsSource, type WatchedTlsFiles } from '../runtime/tls-files.ts';

/** How a client proves who it is to a gateway on TCP, and by which name it knows the gateway. */
export interface ClientTls {
  readonly source: TlsSource;
  /** Name or IP address that the gateway's certificate must have; '' = the host that is dialled. */
  readonly serverName: string;
}

/** The flags of src/gateway-client/flags.ts that say how a gateway is reached. */
export interface GatewaySecurityFlags {
  readonly gateway: readonly string[];
  readonly gatewayTlsCa: string;
  readonly gatewayTlsCert: string;
  readonly gatewayTlsKey: string;
  readonly gatewayTlsServerName: string;
  readonly gatewayInsecure: boolean;
}

/** What a gateway pool needs besides the addresses; close ends the watch over the files. */
export interface GatewaySecurity {
  readonly tls: (ClientTls & { readonly source: WatchedTlsFiles }) | undefined;
  /** Plaintext beyond loopback. */
  readonly insecure: boolean;
  close(): void;
}

/** Opens the files that the flags name.
 * @throws UsageError for half of a set, or files that can't be used */
export async function openGatewaySecurity(
  flags: GatewaySecurityFlags,
  o: { readonly clock: Clock; readonly log: Logger },
): Promise<GatewaySecurity> {
  const files = { ca: flags.gatewayTlsCa, cert: flags.gatewayTlsCert, key: flags.gatewayTlsKey };
  const named = { ca: 'gateway-tls-ca', cert: 'gateway-tls-cert', key: 'gateway-tls-key' };
  const missing = (['ca', 'cert', 'key'] as const)
    .filter((part) => files[part] === '')
    .map((part) => named[part]);
  if (missing.length === 3) {
    if (flags.gatewayTlsServerName !== '')
      throw new UsageError(
        '--gateway-tls-server-name is for mutual TLS: give --gateway-tls-ca too',
      );
    return { tls: undefined, insecure: flags.gatewayInsecure, close: () => undefined };
  }
  if (missing.length > 0) {
    throw new UsageError(
      `--${missing.join(' and --')} missing: mutual TLS needs --gateway-tls-ca, --gateway-tls-cert and --gateway-tls-key`,
    );
  }
  const source = await watchTlsFiles({ files, flags: named, ...o });
  return {
    tls: { source, serverName: flags.gatewayTlsServerName },
    insecure: flags.gatewayInsecure,
    close: () => source.close(),
  };
}

/** Refuses a plaintext way to a gateway that others could listen to.
 * @throws UsageError */
export function refusePlaintext(
  address: Address,
  security: { readonly tls: ClientTls | undefined; readonly insecure: boolean },
): void {
  if (
    address.kind === 'unix' ||
    security.tls !== undefined ||
    security.insecure ||
    isLoopback(address.host)
  )
    return;
  throw new UsageError(
    `--gateway: ${address.host} is beyond loopback, which needs TLS; give --gateway-tls-ca, --gateway-tls-cert and --gateway-tls-key, or --gateway-insecure`,
  );
}

/** Credentials of one channel, made of the material as it is now. */
export function channelSecurity(
  address: Address,
  tls: ClientTls | undefined,
): { readonly credentials: ChannelCredentials; readonly options: ChannelOptions } {
  if (tls === undefined || address.kind === 'unix')
    return { credentials: credentials.createInsecure(), options: {} };
  const { ca, cert, key } = tls.source.current;
  const expected = tls.serverName === '' ? address.host : tls.serverName;
  const context = createSecureContext({ ca, cert, key, minVersion: 'TLSv1.3' });
  return {
    credentials: credentials.createFromSecureContext(context, {
      checkServerIdentity: (_host, certificate) => identityProblem(expected, certificate),
    }),
    // The SNI. An address must not stand there (RFC 6066 §3), so any name does; what is checked is
    // `expected`.
    options: {
      'grpc.ssl_target_name_override': isIP(expected) === 0 ? expected : 'sutler-gateway',
    },
  };
}

/** Why a certificate is not the expected host's. Addresses are compared as addresses:
 * tls.checkServerIdentity of Node 22 compares an IPv6 one as a name. */
function identityProblem(expected: string, certificate: PeerCertificate): Error | undefined {
  if (isIP(expected) !== 0 && new X509Certificate(certificate.raw).checkIP(expected) !== undefined)
    return undefined;
  return checkServerIdentity(expected, certificate);
}
