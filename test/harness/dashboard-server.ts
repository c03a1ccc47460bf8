import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { Agent, type Dispatcher, request } from 'undici';
import { type DashboardOptions, startDashboard } from '#src/dashboard/server.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { jobData, type JobKey, workId } from '#src/queue/contract.ts';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { queueName } from '#src/queue/queue-keys.ts';
import { registerDriver } from '#src/queue/queues.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { startTestRedis, type TestRedis } from './redis.ts';

export const USER = 'admin';
export const PASSWORD = 'open: sésame';
export const PREFIX = 'csi';

/** A Redis server for dashboard tests, with functions that fill it. */
export interface BoardRedis {
  readonly server: TestRedis;
  readonly redis: Redis;
  /** Registers a driver's queue and adds jobs; `delayMs` makes them delayed. */
  fill(driver: string, keys: readonly JobKey[], delayMs?: number): Promise<Queue>;
  /** Every key with its serialised value, to check that nothing was written. */
  contents(): Promise<Readonly<Record<string, string>>>;
  close(): Promise<void>;
}

export async function startBoardRedis(): Promise<BoardRedis> {
  const server = await startTestRedis();
  const { redis } = server;
  const queues: Queue[] = [];
  return {
    server,
    redis,
    async fill(driver, keys, delayMs = 0) {
      const kind = keys[0]?.kind ?? 'claim';
      const name = queueName(kind, driver);
      await registerDriver({ redis, prefix: PREFIX, driver }, '');
      const queue = new Queue(name, { connection: redis, prefix: keyPrefix(PREFIX) });
      queue.on('error', () => undefined);
      queues.push(queue);
      await queue.addBulk(
        keys.map((key) => ({
          name: kind,
          data: jobData(key),
          opts: {
            jobId: workId(key),
            priority: 1,
            delay: delayMs,
          },
        })),
      );
      return queue;
    },
    async contents() {
      const keys = (await redis.keys('*')).sort();
      const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
      return Object.fromEntries(keys.map((key, i) => [key, dumps[i]?.toString('base64') ?? '']));
    },
    async close() {
      await Promise.all(queues.map((queue) => queue.close()));
      await server.close();
    },
  };
}

export interface RunningDashboard {
  readonly origin: string;
  readonly link: RedisLink;
  /** Sends one request. Does not follow redirects and keeps no cookies. */
  send(path: string, o?: SendOptions): Promise<Reply>;
  close(): Promise<void>;
}

export interface SendOptions {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** User and password for HTTP basic authentication. */
  readonly basic?: readonly [string, string];
}

export interface Reply {
  readonly status: number;
  readonly headers: Dispatcher.ResponseData['headers'];
  readonly text: string;
}

/** The dashboard's user and password. */
export const RIGHT: readonly [string, string] = [USER, PASSWORD];

export async function startTestDashboard(
  redisUrl: string,
  { allowActions = false, ...o }: Partial<DashboardOptions> & { allowActions?: boolean } = {},
): Promise<RunningDashboard> {
  const link = openRedis({ url: redisUrl, role: 'plain', log: silentLog });
  const ready = new Promise<void>((resolve) => link.onReady(() => resolve()));
  const dashboard = await startDashboard({
    address: '127.0.0.1:0',
    trustedProxies: [],
    accounts: [{ user: USER, password: PASSWORD, mayAct: allowActions }],
    link,
    prefix: PREFIX,
    log: silentLog,
    metrics: new Registry(),
    ...o,
  }).catch((error: unknown) => {
    link.close();
    throw error;
  });
  await ready;
  const { origin } = new URL(dashboard.url);
  const agent = new Agent();
  const send = async (
    path: string,
    { method = 'GET', headers = {}, body, basic }: SendOptions = {},
  ): Promise<Reply> => {
    const authorization =
      basic === undefined
        ? {}
        : { authorization: `Basic ${Buffer.from(basic.join(':')).toString('base64')}` };
    const reply = await request(`${origin}${path}`, {
      dispatcher: agent,
      method,
      headers: { ...authorization, ...headers },
      body: body ?? null,
    });
    return { status: reply.statusCode, headers: reply.headers, text: await reply.body.text() };
  };
  return {
    origin,
    link,
    send,
    async close() {
      await agent.destroy();
      await dashboard.close();
      link.close();
    },
  };
}

/** Name and value of the cookie that a reply sets; '' if there is none. */
export function cookieOf(reply: Reply): string {
  return String(reply.headers['set-cookie'] ?? '').split(';')[0] ?? '';
}
