import type { RequestHandler } from 'express';
import type { RedisLink } from '../redis/connection.ts';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { parseAllowedNames } from '../runtime/certificate-names.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import type { processFlags } from '../runtime/process-flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { type WatchedTlsFiles, watchTlsFiles } from '../runtime/tls-files.ts';
import { type WatchedFiles, watchFile } from '../runtime/watched-files.ts';
import { redisNoticeStream } from './notice-stream.ts';
import { AdmissionServer } from './admission-server.ts';
import { Authenticator } from './authenticator.ts';
import { EventsServer } from './events-server.ts';
import type { webhookFlags } from './flags.ts';
import { NoticeWriter } from './notice-writer.ts';
import { webhookMetrics } from './metrics.ts';
import { sendProblem } from './problem.ts';
import { parseSigningKeys, parseTokens } from './sender-secrets.ts';
import { startWebhookServer } from './webhook-server.ts';

type Context = Pick<
  ProcessContext<typeof webhookFlags & typeof processFlags>,
  'flags' | 'closers' | 'health' | 'log' | 'metrics' | 'stopping'
>;

/** Starts the servers for webhooks that flags name, until the process closes. Any ingest takes
 * events, whether it leads or not: their hints travel through Redis.
 * @param redis.prefix  value of --redis-prefix
 * @returns their addresses, for `announce`
 * @throws UsageError for flags or files that can't be used */
export async function openWebhooks(
  context: Context,
  redis: { readonly link: RedisLink; readonly prefix: string },
): Promise<Readonly<Record<string, string>>> {
  const { flags } = context;
  checkFlags(context);
  const stream = redisNoticeStream(redis.link.redis, redis.prefix);
  const writer = new NoticeWriter({
    append: (hints) => redis.link.observe('hints', stream.appendNotices(hints)),
    trouble: () => redis.link.trouble,
  });
  return {
    ...(flags.webhookAddress === '' ? {} : { events: await openEvents(context, writer) }),
    ...(flags.admissionAddress === '' ? {} : { admission: await openAdmission(context, writer) }),
  };
}

async function openEvents(context: Context, writer: NoticeWriter): Promise<string> {
  const { flags, closers, log, stopping } = context;
  const tls = await watchTls(context, {
    ca: 'webhook-tls-client-ca',
    cert: 'webhook-tls-cert',
    key: 'webhook-tls-key',
  });
  const tokens = await watchSecrets(context, 'webhook-token-file', parseTokens);
  const signingKeys = await watchSecrets(context, 'webhook-signing-key-file', parseSigningKeys);
  const allowedNames = parseAllowedNames(flags.webhookAllowedNames, 'webhook-allowed-names');
  const authenticator = new Authenticator({
    tokens,
    signingKeys,
    allowedNames,
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
  const server = await startWebhookServer({
    route: {
      path: '/events',
      answer: (...request) => events.answer(...request),
      answerOptions: agreeToEvents(flags.webhookMaxEventsPerSecond),
    },
    flag: 'webhook-address',
    address: flags.webhookAddress,
    tls,
    requiresCertificate: false,
  });
  closers.add('webhooks', () => server.close());
  return server.url;
}

async function openAdmission(context: Context, writer: NoticeWriter): Promise<string> {
  const { flags, closers, log } = context;
  const tls = await watchTls(context, {
    ca: 'admission-tls-client-ca',
    cert: 'admission-tls-cert',
    key: 'admission-tls-key',
  });
  const admission = new AdmissionServer({
    writer,
    maxEventsPerSecond: flags.webhookMaxEventsPerSecond,
    metrics: webhookMetrics(context.metrics),
    clock: systemClock,
    log,
  });
  const server = await startWebhookServer({
    route: {
      path: '/admission',
      answer: (...request) => admission.answer(...request),
    },
    flag: 'admission-address',
    address: flags.admissionAddress,
    tls,
    requiresCertificate: flags.admissionTlsClientCa !== '',
  });
  closers.add('admission webhook', () => server.close());
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

type TlsFlags = Readonly<Record<'ca' | 'cert' | 'key', string>>;

/** @returns undefined if no certificate is named */
async function watchTls(
  { flags, closers, health, log }: Context,
  names: TlsFlags,
): Promise<WatchedTlsFiles | undefined> {
  const files = {
    ca: valueOf(flags, names.ca),
    cert: valueOf(flags, names.cert),
    key: valueOf(flags, names.key),
  };
  if (files.cert === '') return undefined;
  const watched = await watchTlsFiles({ files, flags: names, clock: systemClock, log });
  closers.add(`TLS files of --${names.cert}`, () => watched.close());
  health.ready(names.cert, () => watched.trouble);
  return watched;
}

async function watchSecrets<T>(
  { flags, closers, health, log }: Context,
  flag: string,
  parse: (text: string) => T,
): Promise<WatchedFiles<T> | undefined> {
  const path = valueOf(flags, flag);
  if (path === '') return undefined;
  const watched = await watchFile({ path, flag, parse, clock: systemClock, log });
  closers.add(`file of --${flag}`, () => watched.close());
  health.ready(flag, () => watched.trouble);
  return watched;
}

/** The value of a flag whose type is string. */
function valueOf(flags: Context['flags'], flag: string): string {
  const key = flag.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  return String(flags[key as keyof Context['flags']]);
}

/** @throws UsageError for flags that don't go together, and for servers that would be open to
 * all */
function checkFlags({ flags, log }: Context): void {
  checkTogether(flags, 'webhook');
  checkTogether(flags, 'admission');
  const hasNames = flags.webhookAllowedNames.length > 0;
  if (hasNames !== (flags.webhookTlsClientCa !== ''))
    throw new UsageError(
      '--webhook-allowed-names and --webhook-tls-client-ca need each other: ' +
        `--${hasNames ? 'webhook-tls-client-ca' : 'webhook-allowed-names'} is missing`,
    );
  const isAuthenticated =
    hasNames || flags.webhookTokenFile !== '' || flags.webhookSigningKeyFile !== '';
  if (isBeyondLoopback('webhook-address', flags.webhookAddress)) {
    if (!isAuthenticated)
      throw new UsageError(
        `--webhook-address ${flags.webhookAddress}: without authentication events are taken on ` +
          'loopback only; give --webhook-token-file, --webhook-signing-key-file, or ' +
          '--webhook-tls-client-ca and --webhook-allowed-names',
      );
    if (flags.webhookTokenFile !== '' && flags.webhookTlsCert === '')
      log.warn(
        { address: flags.webhookAddress },
        'bearer tokens arrive in plaintext: whoever reads the network can send events; ' +
          'give --webhook-tls-cert and --webhook-tls-key',
      );
  }
  if (
    isBeyondLoopback('admission-address', flags.admissionAddress) &&
    flags.admissionTlsCert === ''
  )
    throw new UsageError(
      `--admission-address ${flags.admissionAddress}: the API server speaks TLS only; give ` +
        '--admission-tls-cert and --admission-tls-key',
    );
}

function checkTogether(flags: Context['flags'], server: 'webhook' | 'admission'): void {
  const [cert, key, ca] = ['cert', 'key', 'client-ca'].map((part) => `${server}-tls-${part}`);
  if (cert === undefined || key === undefined || ca === undefined) return;
  const hasCert = valueOf(flags, cert) !== '';
  if (hasCert !== (valueOf(flags, key) !== ''))
    throw new UsageError(
      `--${cert} and --${key} need each other: --${hasCert ? key : cert} is missing`,
    );
  if (!hasCert && valueOf(flags, ca) !== '')
    throw new UsageError(
      `--${ca} needs --${cert} and --${key}: without TLS there are no certificates`,
    );
}

function isBeyondLoopback(flag: string, address: string): boolean {
  if (address === '') return false;
  const { host } = parseListenAddress(flag, address);
  return host === undefined || !isLoopback(host);
}
