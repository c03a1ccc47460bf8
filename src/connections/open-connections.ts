import { randomBytes } from 'node:crypto';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import { type DriverAccess, openDriver } from '../gateway-client/open-driver.ts';
import type { KubeClient } from '../kube/client.ts';
import type { kubeFlags } from '../kube/flags.ts';
import { openKubeClient, readClusterUid } from '../kube/open-client.ts';
import { openRedisAccess, type RedisAccess } from '../redis/access.ts';
import { ALWAYS_OURS, type ClusterMarker, watchClusterMarker } from '../redis/cluster-marker.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import type { redisFlags } from '../redis/flags.ts';
import { type SettingsWatch, watchSettings } from '../redis/settings.ts';
import type { ProcessContext } from '../runtime/process.ts';

type Context = ProcessContext<typeof kubeFlags & typeof redisFlags>;

/** What ingest and jobs both connect to, whatever drivers they serve. */
export interface Connections {
  readonly kube: KubeClient;
  readonly redisAccess: RedisAccess;
  readonly link: RedisLink;
  readonly settings: SettingsWatch;
  /** Whether Redis belongs to the cluster of `kube`. */
  readonly marker: ClusterMarker;
}

/** Opens the connections of a process, adds their checks to /readyz, and closes them with the
 * process. Does not wait until they are usable: each connects, and reconnects, in the background.
 * @param name       of the process, for the User-Agent
 * @param redisName  shown by Redis' CLIENT LIST
 * @param isRedisOwn  no other process can reach this Redis, so it is not compared with the cluster
 * @throws UsageError for flags that can't be used */
export async function openConnections(
  context: Context,
  name: string,
  redisName: string,
  isRedisOwn = false,
): Promise<Connections> {
  const { flags, closers, health, log } = context;
  const kube = await openKubeClient(name, context);
  const access = await openRedisAccess(context);
  const link = openRedis({ url: flags.redisUrl, access, role: 'plain', name: redisName, log });
  closers.add('Redis', () => link.close());
  const settings = watchSettings(link, log, { mayForget: isRedisOwn });
  closers.add('Redis settings', () => settings.close());
  const clusterUid = () => readClusterUid(kube);
  const marker = isRedisOwn
    ? ALWAYS_OURS
    : watchClusterMarker({ link, prefix: flags.redisPrefix, clusterUid, log });
  closers.add('cluster marker', () => marker.stop());
  health.ready('redis', () => link.trouble ?? link.refusal);
  health.ready('redis-cluster', () => marker.trouble);
  health.ready('redis-settings', () => settings.trouble);
  return { kube, redisAccess: access, link, settings, marker };
}

/** A name that no other process has: host, pid and a random part. */
export function instanceName({ env, pid }: Pick<Context, 'env' | 'pid'>): string {
  return `${env['HOSTNAME'] ?? 'local'}-${pid}-${randomBytes(3).toString('hex')}`;
}

/** What ingest and jobs connect to for one driver: the connections of the process, which all its
 * drivers share, and the driver's own gateways. */
export interface DriverConnections extends Connections, DriverAccess {}

/** Opens the gateways of a driver, adds their checks and notes to /readyz, and closes them with the
 * driver. Does not wait for a connection.
 * @param expected.name  of the driver, where it is known
 * @throws UsageError for flags that can't be used */
export async function connectDriver(
  context: DriverContext<typeof gatewayClientFlags>,
  connections: Connections,
  expected: { readonly name?: string } = {},
): Promise<DriverConnections> {
  const access = await openDriver(context, connections.kube, expected);
  context.health.ready('driver', () => access.driver.trouble);
  context.health.note('gateway-clock', () => access.gateways.skew);
  return { ...connections, ...access };
}
