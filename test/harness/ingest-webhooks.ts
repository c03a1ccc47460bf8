import { Agent, type Dispatcher, request } from 'undici';
import { type ChangeNotice, NoticeStream } from '#src/webhooks/notices.ts';
import { webhookFlags } from '#src/webhooks/flags.ts';
import { openWebhooks } from '#src/webhooks/open-webhooks.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { Closers } from '#src/runtime/closers.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { type Logger, silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { processFlags } from '#src/runtime/process-flags.ts';
import { until } from './until.ts';

export interface WebhookAnswer {
  readonly status: number;
  readonly headers: Dispatcher.ResponseData['headers'];
  /** The parsed body; undefined if there is none. */
  readonly json: Readonly<Record<string, unknown>> | undefined;
}

/** The servers for webhooks, as ingest starts them. */
export interface WebhookServer {
  /** URL of POST /events; '' if it is not served. */
  readonly events: string;
  /** URL of POST /admission; '' if it is not served. */
  readonly admission: string;
  readonly metrics: Registry;
  readonly health: HealthChecks;
  /** As SIGTERM does. */
  stop(): void;
  /** Sends a body to POST /events. */
  send(
    body: string | Buffer,
    headers?: Readonly<Record<string, string | string[]>>,
  ): Promise<WebhookAnswer>;
  /** Sends a body to POST /admission. */
  review(body: string | Buffer): Promise<WebhookAnswer>;
  /** The notices since the last call. */
  notices(): Promise<readonly ChangeNotice[]>;
  close(): Promise<void>;
}

/** Starts the servers in this process.
 * @param argv  flags; the addresses are on loopback unless given */
export async function startWebhooks(
  redisUrl: string,
  argv: readonly string[] = [],
  log: Logger = silentLog,
): Promise<WebhookServer> {
  const table = { ...processFlags, ...webhookFlags };
  const defaults = ['--webhook-address=127.0.0.1:0', '--admission-address=127.0.0.1:0'];
  const parsed = parseFlags(table, { argv: [...defaults, ...argv], env: {} });
  if (parsed.kind !== 'run') throw new Error('the flags ask for help');
  const link = await connect(redisUrl);
  const readerLink = await connect(redisUrl);
  const [closers, metrics, health] = [new Closers(), new Registry(), new HealthChecks()];
  const stopping = new AbortController();
  const context = { flags: parsed.flags, closers, health, log, metrics, stopping: stopping.signal };
  let urls: Readonly<Record<string, string>>;
  try {
    urls = await openWebhooks(context, { link, prefix: 'csi' });
  } catch (error) {
    for (const each of [link, readerLink]) each.close();
    await closers.close();
    throw error;
  }
  const reader = new NoticeStream(readerLink, 'csi');
  let position = await reader.markEnd();
  const agent = new Agent({ connect: { rejectUnauthorized: false } });
  const post = async (
    url: string,
    body: string | Buffer,
    headers: Readonly<Record<string, string | string[]>>,
  ): Promise<WebhookAnswer> => {
    const reply = await request(url, { dispatcher: agent, method: 'POST', headers, body });
    const text = await reply.body.text();
    const json = text === '' ? undefined : (JSON.parse(text) as WebhookAnswer['json']);
    return { status: reply.statusCode, headers: reply.headers, json };
  };
  const { events = '', admission = '' } = urls;
  return {
    events,
    admission,
    metrics,
    health,
    stop: () => stopping.abort(),
    send: (body, headers = { 'content-type': 'application/json' }) => post(events, body, headers),
    review: (body) => post(admission, body, { 'content-type': 'application/json' }),
    async notices() {
      const read = await reader.read(position, { most: 1_000, waitMs: 20 });
      position = read.position;
      return read.notices;
    },
    async close() {
      stopping.abort();
      await agent.destroy();
      await closers.close();
      for (const each of [link, readerLink]) each.close();
    },
  };
}

async function connect(url: string): Promise<RedisLink> {
  const link = openRedis({ url, role: 'plain', log: silentLog });
  await until(() => link.trouble === undefined, 'Redis is usable');
  return link;
}
