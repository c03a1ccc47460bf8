import { watchTlsFiles, type WatchedTlsFiles } from '../runtime/tls-files.ts';
import { formatAddress, parseAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError, type Flags } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { parseMaxInFlight } from './call-limiter.ts';
import { parseAllowedNames, type CertificateName } from './certificate-names.ts';
import { flags, summary } from './flags.ts';
import { startGateway } from './gateway.ts';

/** The gateway process: holds the driver's socket, for callers that must not or can't. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, {
    name: 'csi-gateway',
    summary,
    table: flags,
    start: async (context) => {
      const { flags: given, log, metrics, closers } = context;
      const driver = parseAddress('csi-address', given.csiAddress);
      const [listen, ...alsoListen] = given.listen.map((text) => parseAddress('listen', text));
      if (listen === undefined)
        throw new UsageError('--listen: empty; name a door, like unix:///run/sutler/gateway.sock');
      const tls = await openTls(given, context);
      const gateway = await startGateway({
        driver,
        listen,
        alsoListen,
        ...(tls === undefined ? {} : { tls }),
        insecure: given.insecure,
        maxInFlight: parseMaxInFlight('max-in-flight', given.maxInFlight),
        adaptiveLimit: given.adaptiveLimit,
        allowAll: given.allowAll,
        probeTimeoutMs: given.timeoutMs,
        maxMessageBytes: given.maxMessageBytes,
        logMessages: given.v >= 5,
        clock: systemClock,
        log,
        metrics,
      });
      closers.add('gateway', () => gateway.close(given.gracePeriodMs));
      context.health.ready('driver', () => gateway.trouble);
      if (tls !== undefined) context.health.ready('tls', () => tls.source.trouble);
      context.announce({
        listen: gateway.addresses.map(formatAddress).join(','),
        driver: formatAddress(driver),
        ...(await openHttpEndpoint(context)),
      });
    },
  });
}

/** The watched TLS files; undefined where none are named.
 * @throws UsageError for half of a set, or files that can't be used */
async function openTls(
  given: Flags<typeof flags>,
  { log, closers }: Pick<ProcessContext<typeof flags>, 'log' | 'closers'>,
): Promise<
  | { readonly source: WatchedTlsFiles; readonly allowedNames: readonly CertificateName[] }
  | undefined
> {
  const named = {
    'tls-cert': given.tlsCert,
    'tls-key': given.tlsKey,
    'tls-client-ca': given.tlsClientCa,
  };
  const missing = Object.entries(named).flatMap(([flag, path]) => (path === '' ? [flag] : []));
  if (missing.length === 3 && given.tlsAllowedNames.length === 0) return undefined;
  if (missing.length > 0)
    throw new UsageError(
      `--${missing.join(' and --')} missing: mutual TLS needs --tls-cert, --tls-key and --tls-client-ca`,
    );
  if (given.tlsAllowedNames.length === 0)
    throw new UsageError(
      '--tls-allowed-names missing: name the callers that may call, like DNS:sutler-jobs; an authority signs for many',
    );
  const allowedNames = parseAllowedNames('tls-allowed-names', given.tlsAllowedNames);
  const source = await watchTlsFiles({
    files: { ca: given.tlsClientCa, cert: given.tlsCert, key: given.tlsKey },
    flags: { ca: 'tls-client-ca', cert: 'tls-cert', key: 'tls-key' },
    clock: systemClock,
    log,
  });
  closers.add('TLS files', () => source.close());
  return { source, allowedNames };
}
