import { formatAddress, parseAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { type Invocation, type ProcessContext, runProcess } from '../runtime/process.ts';
import { areTlsFilesNamed, openTlsFiles } from '../runtime/tls-files.ts';
import { parseAllowedNames } from '../runtime/certificate-names.ts';
import { flags as table, summary } from './flags.ts';
import type { ListenerTls } from './listener.ts';
import { Gateway } from './server.ts';

type Context = ProcessContext<typeof table>;

/** The gateway process, which runs beside the driver. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'csi-gateway', summary, table, start });
}

/** Opens all parts of the gateway, which then run until the process closes. */
export async function start(context: Context): Promise<void> {
  const { flags, closers, health, log, metrics } = context;
  const driver = parseAddress('csi-address', flags.csiAddress);
  const listen = flags.listen.map((text) => parseAddress('listen', text));
  if (listen.length === 0)
    throw new UsageError('--listen: empty; give an address, like unix:///run/sutler/gateway.sock');
  const tls = await openTls(context);
  const gateway = new Gateway({
    driver,
    listen,
    tls,
    insecure: flags.insecure,
    maxInFlight: flags.maxInFlight,
    allowAll: flags.allowAll,
    pod: flags.podUid,
    probeTimeoutMs: flags.timeoutMs,
    maxMessageBytes: flags.maxMessageBytes,
    maxRequestBytes: flags.maxRequestBytes,
    logsMessages: flags.v >= 5,
    clock: systemClock,
    log,
    metrics,
  });
  const addresses = await gateway.start();
  closers.add('gateway', () => gateway.close(flags.gracePeriodMs));
  health.ready('driver', () => gateway.trouble);
  context.announce({
    listen: addresses.map(formatAddress).join(','),
    driver: formatAddress(driver),
    ...(await openHttpEndpoint(context)),
  });
}

/** Reads and watches the TLS files; undefined if none are named.
 * @throws UsageError if only some of the flags are given, or a file can't be used */
async function openTls(context: Context): Promise<ListenerTls | undefined> {
  const { flags } = context;
  const names = flags.tlsAllowedNames;
  const files = {
    cert: { flag: 'tls-cert', path: flags.tlsCert },
    key: { flag: 'tls-key', path: flags.tlsKey },
    ca: { flag: 'tls-client-ca', path: flags.tlsClientCa },
  };
  if (!areTlsFilesNamed(files, names.length > 0)) return undefined;
  if (names.length === 0)
    throw new UsageError(
      '--tls-allowed-names missing: name the allowed callers, like DNS:sutler-jobs; ' +
        'the authority may also have signed other certificates',
    );
  const allowedNames = parseAllowedNames(names);
  return { source: await openTlsFiles(context, 'tls', files), allowedNames };
}
