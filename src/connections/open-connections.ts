import { randomBytes } from 'node:crypto';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { OwnLeader } from '../election/own-leader.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import { type DriverAccess, openDriver } from '../gateway-client/open-driver.ts';
import type { KubeClient } from '../kube/client.ts';
import type { kubeFlags } from '../kube/flags.ts';
import { openKubeClient } from '../kube/open-client.ts';
import { openRedisAccess, type RedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { describeRedisError, isRefusal } from '../redis/error-text.ts';
import type { redisFlags } from '../redis/flags.ts';
import { removeProcess, writeProcess } from '../redis/processes.ts';
import { checkSettings } from '../redis/settings.ts';
import { Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { version } from '../runtime/version.ts';

type Context = ProcessContext<typeof kubeFlags & typeof redisFlags>;

/** The drivers that a process serves: an ingest leads them, a jobs process takes their jobs. */
export interface ServedDrivers {
  add(driver: string): void;
  delete(driver: string): void;
}

/** The connections of ingest and of jobs, whatever drivers they serve. */
export interface Connections {
  readonly kube: KubeClient;
  readonly redisAccess: RedisAccess;
  readonly link: RedisLink;
  /** For commands and the dashboard. */
  readonly serves: ServedDrivers;
}

/** Opens the connections of a process, adds their checks to /readyz, and closes them with the
 * process. Does not wait until they are usable: each connects, and reconnects, in the background.
 * @param name  of the process, for the User-Agent
 * @param redisName  shown by Redis' CLIENT LIST
 * @throws UsageError for flags that can't be used */
export async function openConnections(
  context: Context,
  name: string,
  redisName: string,
): Promise<Connections> {
  const { flags, closers, log } = context;
  const kube = await openKubeClient(name, context);
  const access = await openRedisAccess(context);
  const link = openRedis({ url: flags.redisUrl, access, role: 'plain', name: redisName, log });
  closers.add('Redis', () => link.close());
  const serves = reportProcess(context, name, link);
  return { kube, redisAccess: access, link, serves };
}

const REPORT_PERIOD_MS = 2_000;
/** How often to check settings that are right. Wrong ones, and those of a new connection, are
 * checked with the next report. */
const CHECK_AGAIN_MS = 10_000;
/** A Redis that takes longer to answer is frozen, or its network is cut despite the connection. */
const LONGEST_ANSWER_MS = 2_500;

/** Writes to Redis what /readyz of this process says, for commands and the dashboard: every 2 s,
 * and at once when the process begins or ends to serve a driver. /readyz then says whether Redis
 * accepts writes, and whether its settings are right.
 * @returns takes the drivers that the process serves */
function reportProcess(context: Context, process: string, link: RedisLink): ServedDrivers {
  const { flags, closers, health, log } = context;
  const { redis, address } = link;
  const instance = instanceName(context);
  const drivers = new Set<string>();
  const [refusals, faults] = [new Outage(log), new Outage(log)];
  let refusal: string | undefined;
  let wrong: readonly string[] = [];
  let nextCheckMs = -Infinity;
  /** When the present question to Redis was sent, by performance.now(). */
  let askedMs = Infinity;
  const silence = (): string | undefined => {
    const silentMs = performance.now() - askedMs;
    return silentMs > LONGEST_ANSWER_MS
      ? `Redis at ${address} has not answered for ${Math.round(silentMs / 1_000)} s`
      : undefined;
  };
  health.ready('redis', () => link.trouble ?? refusal ?? silence());
  health.ready('redis-settings', () => (wrong.length === 0 ? undefined : wrong.join('; ')));
  const loop = new PollLoop({
    step: async () => {
      if (link.trouble !== undefined) return;
      askedMs = performance.now();
      if (performance.now() >= nextCheckMs) {
        wrong = await checkSettings(redis);
        nextCheckMs = wrong.length === 0 ? performance.now() + CHECK_AGAIN_MS : -Infinity;
        if (wrong.length === 0)
          faults.ended({ redis: address }, 'the settings of Redis are right now');
        else faults.met(wrong.join(), { redis: address, wrong }, 'the settings of Redis are wrong');
      }
      const entry = { process, instance, version, drivers: [...drivers], lines: health.troubles() };
      await writeProcess(redis, flags.redisPrefix, entry);
      askedMs = Infinity;
      refusal = undefined;
      refusals.ended({ redis: address }, 'Redis accepts sutler’s commands again');
    },
    onError: (error) => {
      askedMs = Infinity;
      log.debug({ err: error }, 'could not report this process; trying again');
      if (link.trouble !== undefined) return;
      if (isRefusal(error)) {
        refusal = describeRedisError(address, error);
        refusals.met(refusal, { refusal }, 'Redis refuses sutler’s commands; trying again');
      } else {
        refusal = `Redis at ${address} does not answer`;
        refusals.met(refusal, { redis: address }, 'Redis does not answer; trying again');
      }
    },
    periodMs: REPORT_PERIOD_MS,
  });
  const endReady = link.onReady(() => (nextCheckMs = -Infinity));
  closers.add('report of this process', async () => {
    endReady();
    await loop.stop();
    for (const outage of [refusals, faults]) outage.forget();
    if (link.trouble === undefined)
      await removeProcess(redis, flags.redisPrefix, instance).catch(() => undefined);
  });
  return {
    add(driver) {
      drivers.add(driver);
      loop.runNow();
    },
    delete(driver) {
      if (drivers.delete(driver)) loop.runNow();
    },
  };
}

/** A name that no other process has: host, pid and a random part. */
export function instanceName({ env, pid }: Pick<Context, 'env' | 'pid'>): string {
  return `${env['HOSTNAME'] ?? 'local'}-${pid}-${randomBytes(3).toString('hex')}`;
}

/** What ingest and jobs connect to for one driver: the connections of the process, which all its
 * drivers share, and the driver's own gateways. */
export interface DriverConnections extends Connections, DriverAccess {}

/** What ingest and jobs share if they are one process (`sutler all`). */
export interface OneProcess {
  /** Set if the process has its own Redis. */
  readonly leader?: OwnLeader | undefined;
  /** Set if the process calls the driver beside it directly. */
  readonly driver?: DriverAccess | undefined;
}

/** Opens the gateways of a driver, adds their checks and notes to /readyz, and closes them with the
 * driver. Does not wait for a connection.
 * @param o.name  of the driver, if known
 * @param o.own   access to the driver at its socket, if this process has the socket
 * @throws UsageError if the flags can't be used */
export async function connectDriver(
  context: DriverContext<typeof gatewayClientFlags>,
  connections: Connections,
  o: { readonly name?: string; readonly own?: DriverAccess | undefined } = {},
): Promise<DriverConnections> {
  const access = o.own ?? (await openDriver(context, connections.kube, o.name ?? ''));
  context.health.ready('driver', () => access.driver.trouble);
  return { ...connections, ...access };
}
