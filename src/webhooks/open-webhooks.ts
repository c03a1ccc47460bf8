import type { RequestHandler } from 'express';
import type { RedisLink } from '../redis/connection.ts';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { parseAllowedNames } from '../runtime/certificate-names.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import type { processFlags } from '../runtime/process-flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { type TlsFiles, type WatchedTlsFiles, watchTlsFiles } from '../runtime/tls-files.ts';
import { type WatchedFiles, watchFile } from '../runtime/watched-files.ts';
import { NoticeWriter, redisNoticeStream } from './notices.ts';
import { AdmissionServer } from './admission-server.ts';
import { Authenticator } from './authenticator.ts';
import { EventsServer } from './events-server.ts';
import type { webhookFlags } from './flags.ts';
import { webhookMetrics } from './metrics.ts';
import { sendProblem } from './problem.ts';
import { parseSigningKeys, parseTokens } from './sender-secrets.ts';
import { type Route, startWebhookServer } from './webhook-server.ts';

type Context = Pick<
  ProcessContext<typeof webhookFlags & typeof processFlags>,
  'flags' | 'closers' | 'health' | 'log' | 'metrics' | 'stopping'
>;

/** Starts the servers for webhooks that flags name, until the process closes. Any ingest takes
 * events, whether it leads or not: their notices travel through Redis.
 * @param redis.prefix  value of --redis-prefix
 * @returns their addresses, for `announce`
 * @throws UsageError for flags or files that can't be used */
export async function openWebhooks(
  context: Context,
  redis: { readonly link: RedisLink; readonly prefix: string },
): Promise<Readonly<Record<string, string>>> {
  const { flags } = context;
  const events = serverFlags(flags, 'webhook');
  const admission = serverFlags(flags, 'admission');
  checkFlags(context, { events, admission });
  const stream = redisNoticeStream(redis.link.redis, redis.prefix);
  const writer = new NoticeWriter({
    append: (notices) => stream.appendNotices(notices),
    trouble: () => redis.link.trouble,
  });
  return {
    ...(events.address === '' ? {} : { events: await openEvents(context, events, writer) }),
    ...(admission.address === ''
      ? {}
      : { admission: await openAdmission(context, admission, writer) }),
  };
}

async function openEvents(
  context: Context,
  server: ServerFlags,
  writer: NoticeWriter,
): Promise<string> {
  const { flags, log, stopping } = context;
  const { webhookTokenFile, webhookSigningKeyFile } = flags;
  const authenticator = new Authenticator({
    tokens: await watchSecrets(context, ['webhook-token-file', webhookTokenFile], parseTokens),
    signingKeys: await watchSecrets(
      context,
      ['webhook-signing-key-file', webhookSigningKeyFile],
      parseSigningKeys,
    ),
    allowedNames: parseAllowedNames(flags.webhookAllowedNames, 'webhook-allowed-names'),
    clock: systemClock,
  });
  const events = new EventsServer({
    authenticator,
    writer,
    maxEventsPerSecond: flags.webhookMaxEventsPerSecond,
    metrics: webhookMetrics(context.metrics),
    clock: systemClock,
    log,
    stopping,
  });
  return openServer(context, server, false, {
    path: '/events',
    answer: (...request) => events.answer(...request),
    answerOptions: agreeToEvents(flags.webhookMaxEventsPerSecond),
  });
}

function openAdmission(
  context: Context,
  server: ServerFlags,
  writer: NoticeWriter,
): Promise<string> {
  const admission = new AdmissionServer({
    writer,
    maxEventsPerSecond: context.flags.webhookMaxEventsPerSecond,
    metrics: webhookMetrics(context.metrics),
    clock: systemClock,
    log: context.log,
  });
  return openServer(context, server, server.ca !== '', {
    path: '/admission',
    answer: (...request) => admission.answer(...request),
  });
}

/** The flags that both servers have, each with its own prefix; '' where one is not given. */
interface ServerFlags extends TlsFiles {
  readonly prefix: 'webhook' | 'admission';
  readonly address: string;
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

/** @returns its address */
async function openServer(
  { closers, health, log }: Context,
  { prefix, address, ca, cert, key }: ServerFlags,
  requiresCertificate: boolean,
  route: Route,
): Promise<string> {
  let tls: WatchedTlsFiles | undefined;
  if (cert !== '') {
    const flags = {
      ca: `${prefix}-tls-client-ca`,
      cert: `${prefix}-tls-cert`,
      key: `${prefix}-tls-key`,
    };
    const watched = await watchTlsFiles({
      files: { ca, cert, key },
      flags,
      clock: systemClock,
      log,
    });
    closers.add(`TLS files of --${flags.cert}`, () => watched.close());
    health.ready(flags.cert, () => watched.trouble);
    tls = watched;
  }
  const flag = `${prefix}-address`;
  const server = await startWebhookServer({ route, flag, address, tls, requiresCertificate });
  closers.add(`${prefix} server`, () => server.close());
  return server.url;
}

/** Agrees to be sent events, as CloudEvents' Web Hooks ask first.
 * @see CloudEvents HTTP 1.1 Web Hooks 4 */
function agreeToEvents(maxEventsPerSecond: number): RequestHandler {
  return (request, response) => {
    response.setHeader('allow', 'POST, OPTIONS');
    if (request.headers['webhook-request-origin'] === undefined) {
      const detail = 'send events by POST; OPTIONS needs WebHook-Request-Origin';
      return sendProblem(request, response, { status: 405, detail, field: 'method' });
    }
    response.setHeader('webhook-allowed-origin', '*');
    response.setHeader('webhook-allowed-rate', String(maxEventsPerSecond * 60));
    response.statusCode = 204;
    response.end();
  };
}

async function watchSecrets<T>(
  { closers, health, log }: Context,
  [flag, path]: readonly [string, string],
  parse: (text: string) => T,
): Promise<WatchedFiles<T> | undefined> {
  if (path === '') return undefined;
  const watched = await watchFile({ path, flag, parse, clock: systemClock, log });
  closers.add(`file of --${flag}`, () => watched.close());
  health.ready(flag, () => watched.trouble);
  return watched;
}

/** @throws UsageError for flags that don't go together, and for servers that would be open to
 * all */
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
      `--webhook-address ${events.address}: without authentication events are taken on ` +
        'loopback only; give --webhook-token-file, --webhook-signing-key-file, or ' +
        '--webhook-tls-client-ca and --webhook-allowed-names',
    );
  if (isBeyondLoopback(events) && hasTokens && events.cert === '')
    log.warn(
      { address: events.address },
      'bearer tokens arrive in plaintext: whoever reads the network can send events; ' +
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
