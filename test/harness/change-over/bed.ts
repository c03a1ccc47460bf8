import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { Closers } from '#src/runtime/closers.ts';
import { startProgram, startSutlerProcess, type SutlerProcess } from '../program.ts';
import { startRedisServer } from '../redis-server.ts';
import { assertNothingDenied, redisUsers, urlOf } from '../redis-users.ts';
import { openDriverPlace } from './driver-place.ts';
import type { ChangeOverPlace } from './scenario.ts';
import { VolumeLedger } from './volume-ledger.ts';

/** Short, so that a Lease that is not released is soon free. */
const LEASE_FLAGS = [
  '--leader-election-lease-duration=5s',
  '--leader-election-renew-deadline=4s',
  '--leader-election-retry-period=1s',
];

export interface BedOptions {
  readonly kubeconfig: string;
  /** Path of external-provisioner's binary, where it is to be started. */
  readonly upstream?: string;
  /** Claims or volumes that a provisioner works on at once. */
  readonly workerThreads: number;
  readonly driverDelayMs: number;
  readonly ingestFlags?: readonly string[];
  readonly jobsFlags?: readonly string[];
  /** Kubeconfigs of ingest and jobs, which then keep the Lease in `sutler`. */
  readonly accounts?: Readonly<Record<'ingest' | 'jobs', string>> | undefined;
  /** Variables of ingest and jobs. */
  readonly envOf?: (name: 'ingest' | 'jobs') => Readonly<Record<string, string>>;
}

/** A place for change-overs whose parts are processes: gateway, one jobs process, ingest and
 * external-provisioner. The driver and Redis are there too. */
export interface ChangeOverBed extends ChangeOverPlace {
  readonly driver: string;
  /** Folder with a log of each process. */
  readonly folder: string;
  readonly gateway: SutlerProcess;
  /** Copies the data of Redis; the result ends Redis and starts it with the copy. */
  backUpRedis(): Promise<() => Promise<void>>;
  /** @param cli  of another version of sutler */
  startGateway(cli?: string): Promise<SutlerProcess>;
  startJobs(cli?: string): Promise<SutlerProcess>;
  startIngest(cli?: string): Promise<SutlerProcess>;
  close(): Promise<readonly Error[]>;
}

export async function openChangeOverBed(options: BedOptions): Promise<ChangeOverBed> {
  const { kubeconfig, workerThreads, driverDelayMs, accounts } = options;
  const { ingestFlags = [], jobsFlags = [] } = options;
  const closers = new Closers();
  const folder = await mkdtemp(join(tmpdir(), 'sutler-change-over-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const dataDir = join(folder, 'redis');
  const settings = redisUsers();
  let redis = await startRedisServer({ dataDir, settings });
  closers.add('Redis', () => redis.close());
  const { port, url: redisUrl } = redis;
  const admin = new Redis(redisUrl).on('error', () => undefined);
  closers.add('least rights', async () => {
    await assertNothingDenied(admin);
    admin.disconnect();
  });
  const backUpRedis = async (): Promise<() => Promise<void>> => {
    // Redis reads this file when it starts.
    const file = join(dataDir, 'dump.rdb');
    const copy = join(folder, 'backup.rdb');
    await admin.save();
    await rename(file, copy);
    return async () => {
      await redis.close();
      await rename(copy, file);
      const { password } = new URL(redisUrl);
      redis = await startRedisServer({ dataDir, port, password, settings });
    };
  };
  const ledger = new VolumeLedger(({ metadata }) =>
    String(metadata.get('user-agent')[0]).includes('grpc-go'),
  );
  const driverName = `change-over-${Date.now().toString(36)}.csi.example`;
  const socket = join(folder, 'csi.sock');
  const place = { kubeconfig, folder, name: driverName, delayMs: driverDelayMs, ledger, closers };
  const { driver, kube, className } = await openDriverPlace(place);

  const start = async (
    args: readonly string[],
    cli?: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<SutlerProcess> => {
    const all = { HOME: folder, REDIS_URL: redisUrl, ...env };
    const started = await startSutlerProcess(args, { cli, logFolder: folder, env: all });
    closers.add(args[0] ?? '', () => started.stop());
    return started;
  };
  const gateway = `unix://${join(folder, 'gateway.sock')}`;
  const startGateway = (cli?: string): Promise<SutlerProcess> =>
    start(['csi-gateway', `--csi-address=unix://${socket}`, `--listen=${gateway}`], cli);
  const lease = `--leader-election-namespace=${accounts === undefined ? 'default' : 'sutler'}`;
  const startPart = (
    name: 'ingest' | 'jobs',
    flags: readonly string[],
    cli?: string,
  ): Promise<SutlerProcess> => {
    const own = `--kubeconfig=${accounts?.[name] ?? kubeconfig}`;
    const common = [own, lease, `--gateway=${gateway}`, '--timeout=10s', '--settle-time=2s'];
    const env = { REDIS_URL: urlOf(name, redisUrl), ...options.envOf?.(name) };
    return start([name, ...common, ...flags], cli, env);
  };
  const upstreamArgs = argumentsOfUpstream({ ...options, socket });
  return {
    kube,
    namespace: 'default',
    className,
    driver: driverName,
    folder,
    ledger,
    handles: () => driver.volumes().map(({ handle }) => handle),
    isReported: async (handles) => {
      const log = await readFile(join(folder, 'ingest.log'), 'utf8');
      const line = log.split('\n').findLast((each) => each.includes('orphaned volumes found'));
      return (
        line?.includes(` orphans=${handles.length} `) === true &&
        handles.every((handle) => line.includes(handle))
      );
    },
    gateway: await startGateway(),
    backUpRedis,
    startGateway,
    startIngest: (cli) => startPart('ingest', [...LEASE_FLAGS, ...ingestFlags], cli),
    startJobs: (cli) => startPart('jobs', [`--worker-threads=${workerThreads}`, ...jobsFlags], cli),
    startOther: () => {
      const upstream = startProgram(options.upstream ?? 'csi-provisioner', upstreamArgs);
      closers.add('external-provisioner', () => upstream.stop(STOP_GRACE_MS));
      return Promise.resolve(upstream);
    },
    close: () => closers.close(),
  };
}

const STOP_GRACE_MS = 30_000;

function argumentsOfUpstream(o: BedOptions & { readonly socket: string }): readonly string[] {
  return [
    `--kubeconfig=${o.kubeconfig}`,
    `--csi-address=${o.socket}`,
    `--worker-threads=${o.workerThreads}`,
    '--leader-election',
    '--leader-election-namespace=default',
    ...LEASE_FLAGS,
    '--kube-api-qps=1000',
    '--kube-api-burst=1000',
    '--timeout=10s',
    '--retry-interval-start=200ms',
    '-v=3',
  ];
}
