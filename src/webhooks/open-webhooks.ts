import type { RedisLink } from '../redis/connection.ts';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { parseAllowedNames } from '../runtime/certificate-names.ts';
import { UsageError } from '../runtime/flags.ts';
import type { processFlags } from '../runtime/process-flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { type WatchedFiles, watchFiles } from '../runtime/watched-files.ts';
import { AdmissionEndpoint } from './admission.ts';
import { Authenticator } from './authenticator.ts';
import { EventsEndpoint } from './events.ts';
import type { webhookFlags } from './flags.ts';
import { webhookMetrics } from './metrics.ts';
import { NoticeStream } from './notices.ts';
import { parseSigningKeys, parseTokens } from './sender-secrets.ts';
import { openServer, type ServerFlags } from './webhook-server.ts';

type Context = Pick<
  ProcessContext<typeof webhookFlags & typeof processFlags>,
  'flags' | 'closers' | 'health' | 'log' | 'metrics' | 'stopping'
>;

/** Starts the servers for webhooks that flags name, until the process closes. An ingest that does
 * not lead takes events too, because the notices travel through Redis.
 * @param redis.prefix  value of --redis-prefix
 * @returns their addresses, for `announce`
 * @throws UsageError for flags or files that can't be used */
export async function openWebhooks(
  context: Context,
  redis: { readonly link: RedisLink; readonly prefix: string },
): Promise<Readonly<Record<string, string>>> {
  const { flags, log, stopping } = context;
  const events = serverFlags(flags, 'webhook');
  const admission = serverFlags(flags, 'admission');
  checkFlags(context, { events, admission });
  const stream = new NoticeStream(redis.link, redis.prefix);
  const shared = { stream, metrics: webhookMetrics(context.metrics), log, stopping };
  const urls: Record<string, string> = {};
  if (events.address !== '') {
    const authenticator = new Authenticator({
      tokens: await watchSecrets(context, 'webhook-token-file', parseTokens),
      signingKeys: await watchSecrets(context, 'webhook-signing-key-file', parseSigningKeys),
      allowedNames: parseAllowedNames(flags.webhookAllowedNames, 'webhook-allowed-names'),
    });
    const endpoint = new EventsEndpoint(authenticator, shared);
    urls['events'] = await openServer(context, events, '/events', endpoint);
  }
  if (admission.address !== '') {
    const endpoint = new AdmissionEndpoint(shared);
    urls['admission'] = await openServer(context, admission, '/admission', endpoint);
  }
  return urls;
}

function serverFlags(flags: Context['flags'], prefix: ServerFlags['prefix']): ServerFlags {
  return {
    prefix,
    address: flags[`${prefix}Address`],
    ca: flags[`${prefix}TlsClientCa`],
    cert: flags[`${prefix}TlsCert`],
    key: flags[`${prefix}TlsKey`],
  };
}

async function watchSecrets<T>(
  { flags, closers, health, log }: Context,
  flag: 'webhook-token-file' | 'webhook-signing-key-file',
  parse: (text: string) => T,
): Promise<WatchedFiles<T> | undefined> {
  const path = flags[flag === 'webhook-token-file' ? 'webhookTokenFile' : 'webhookSigningKeyFile'];
  if (path === '') return undefined;
  const files = [{ flag, path }];
  const parseFile = ([text = '']: readonly string[]): T => parse(text);
  const watched = await watchFiles({ files, parse: parseFile, log });
  closers.add(`file of --${flag}`, () => watched.close());
  health.ready(flag, () => watched.trouble);
  return watched;
}

/** @throws UsageError for flags that don't go together, and for servers without authentication */
function checkFlags(
  { flags, log }: Context,
  { events, admission }: Readonly<Record<'events' | 'admission', ServerFlags>>,
): void {
  checkTls(events);
  checkTls(admission);
  const hasNames = flags.webhookAllowedNames.length > 0;
  if (hasNames !== (events.ca !== ''))
    throw new UsageError(
      '--webhook-allowed-names and --webhook-tls-client-ca need each other: ' +
        `--${hasNames ? 'webhook-tls-client-ca' : 'webhook-allowed-names'} is missing`,
    );
  const hasTokens = flags.webhookTokenFile !== '';
  const isAuthenticated = hasNames || hasTokens || flags.webhookSigningKeyFile !== '';
  if (isBeyondLoopback(events) && !isAuthenticated)
    throw new UsageError(
      `--webhook-address ${events.address}: without authentication it must be a loopback ` +
        'address; give --webhook-token-file, --webhook-signing-key-file, or ' +
        '--webhook-tls-client-ca and --webhook-allowed-names',
    );
  if (isBeyondLoopback(events) && hasTokens && events.cert === '')
    log.warn(
      { address: events.address },
      'bearer tokens arrive in plaintext, and whoever can read the network can use them; ' +
        'give --webhook-tls-cert and --webhook-tls-key',
    );
  if (isBeyondLoopback(admission) && admission.cert === '')
    throw new UsageError(
      `--admission-address ${admission.address}: the API server speaks TLS only; give ` +
        '--admission-tls-cert and --admission-tls-key',
    );
}

function checkTls({ prefix, ca, cert, key }: ServerFlags): void {
  const own = `--${prefix}-tls-`;
  if ((cert === '') !== (key === ''))
    throw new UsageError(
      `${own}cert and ${own}key need each other: ${own}${cert === '' ? 'cert' : 'key'} is missing`,
    );
  if (cert === '' && ca !== '')
    throw new UsageError(
      `${own}client-ca needs ${own}cert and ${own}key: without TLS there are no certificates`,
    );
}

function isBeyondLoopback({ prefix, address }: ServerFlags): boolean {
  if (address === '') return false;
  const { host } = parseListenAddress(`${prefix}-address`, address);
  return host === undefined || !isLoopback(host);
}
