import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { CsiClient } from '#src/gateway-client/client.ts';
import { repeatWhileFull } from '#src/gateway-client/pool.ts';
import type { MaxInFlight } from '#src/csi-gateway/call-limiter.ts';
import { type Gateway, startGateway } from '#src/csi-gateway/gateway.ts';
import { reconcileVolume } from '#src/jobs/volume/reconcile-volume.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { ownershipMs } from '#src/records/flags.ts';
import { NO_CAPACITY_HINTS } from '#src/capacity/hints.ts';
import { createOperationCounts } from '#src/jobs/operation-counts.ts';
import { group, type Parts } from './parts.ts';
import { reconcileClaim } from '#src/jobs/claim/reconcile-claim.ts';
import { runToOutcome } from '#src/jobs/consumers.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { EventCorrelator, type EventInput } from '#src/kube/event-correlation.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import * as resources from '#src/kube/resources.ts';
import { ClassTurns } from '#src/queue/class-turns.ts';
import type { Run } from '#src/queue/run.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { type Outcome, shownReason } from '#src/queue/outcome.ts';
import { VolumeNames } from '#src/records/names-in-use.ts';
import { openSources } from '#src/records/open-records.ts';
import type { VolumeRecordsOptions } from '#src/records/record-ends.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { startRedisServer } from '../harness/redis-server.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { DEFAULT_OPTIONS } from '../harness/default-options.ts';

export const DRIVER = 'sample.csi.sutler.dev';

type Hook = (call: DriverCall) => unknown;

/** The processors of claims and volumes on real parts: Redis, gateway, sample driver and the
 * sandbox's API server, all on loopback in this process. */
export interface Rig {
  readonly parts: Parts;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly redis: Redis;
  readonly redisUrl: string;
  /** Folder of the sockets: the driver's csi.sock, and gateway.sock. */
  readonly dir: string;
  readonly driver: SampleDriver;
  readonly gateway: Gateway;
  readonly events: EventInput[];
  /** The metrics that the processors write. */
  readonly metrics: Registry;
  /** Runs before each driver call; what it returns is the driver's answer. */
  onCall: Hook;
  /** Creates a class and a claim of it that the volume controller has annotated. */
  claim(change?: {
    name?: string;
    /** Of an existing class. */
    className?: string;
    parameters?: Record<string, string>;
    reclaimPolicy?: 'Delete' | 'Retain';
  }): Promise<Claim>;
  /** @param seen  a version that the job carries of its claim */
  provision(claim: Claim, parts?: Partial<Parts>, seen?: string): Promise<Outcome>;
  remove(volume: Volume, parts?: Partial<Parts>): Promise<Outcome>;
  volumeOf(claim: Claim): Promise<Volume | undefined>;
  /** Sets the phase as the volume controller does. */
  setPhase(volume: Volume, phase: 'Bound' | 'Released'): Promise<Volume>;
  record(id: string): Promise<Record<string, string>>;
  /** Ends the settle time of the record's last call of unknown end. */
  settle(id: string): Promise<void>;
  /** The records as a process that has just started sees them. */
  newRecords(change?: Partial<VolumeRecordsOptions>): VolumeRecords;
  reset(): Promise<void>;
  close(): Promise<void>;
}

/** @param o.maxInFlight  calls that the gateway lets by at once */
export async function openRig(o: { readonly maxInFlight?: MaxInFlight } = {}): Promise<Rig> {
  const dir = await mkdtemp(join(tmpdir(), 'sutler-jobs-'));
  const server = await startRedisServer({ dataDir: dir });
  const redis = new Redis(server.url);
  const cluster = await openSandboxCluster();
  const kube = createKubeClient({
    access: cluster.access,
    userAgent: 'test',
    log: silentLog,
  });
  let hook: Hook = () => undefined;
  const metrics = new Registry();
  const driver = await startSampleDriver({
    socket: join(dir, 'csi.sock'),
    dataDir: join(dir, 'volumes'),
    record: true,
    onCall: (call) => hook(call),
  });
  const listen = { kind: 'unix', path: join(dir, 'gateway.sock') } as const;
  const gateway = await startGateway({
    driver: { kind: 'unix', path: driver.socket },
    listen,
    allowAll: false,
    probeTimeoutMs: 5000,
    maxMessageBytes: 1 << 20,
    maxRequestBytes: 1 << 20,
    logMessages: false,
    clock: systemClock,
    log: silentLog,
    metrics: new Registry(),
    ...o,
  });
  while (gateway.trouble !== undefined) await systemClock.sleep(10);
  const csi = new CsiClient({ address: listen, log: silentLog });
  const classes = new Map<string, Class>();
  const events: EventInput[] = [];
  let runs = 0;
  let claims = 0;
  const timeoutMs = 5000;
  const createRecords = (change: Partial<VolumeRecordsOptions> = {}) =>
    new VolumeRecords({
      redis,
      prefix: 'csi',
      driver: DRIVER,
      ownMs: ownershipMs({ timeoutMs, writeAllowanceMs: 30_000 }),
      settleMs: 60_000,
      ...change,
    });
  let records = createRecords();
  // As the recorder does: a warning that was told already is only counted.
  const correlator = new EventCorrelator(60_000);
  const recordOnce = (event: EventInput): void => {
    const series = correlator.take(event, Date.now());
    if (event.type === 'Normal') return void events.push(event);
    if (typeof series === 'string') return;
    series.writtenAtMs = Date.now();
    events.push(event);
  };
  const parts: Parts = {
    kube,
    csi: repeatWhileFull(csi, { clock: systemClock, random: Math.random }),
    get records() {
      return records;
    },
    copies: { claimOf: () => Promise.resolve(undefined) },
    openSources: () => openSources(redis, 'csi', DRIVER),
    turns: new ClassTurns(redis, { prefix: 'csi', driver: DRIVER, keepMs: 60_000 }),
    names: new VolumeNames(redis, 'csi', DRIVER),
    events: { record: (event) => recordOnce(event) },
    counts: createOperationCounts(metrics),
    capacity: NO_CAPACITY_HINTS,
    classOf: (name) => classes.get(name),
    classes: () => classes.values(),
    attachedTo: () => [],
    topology: () => undefined,
    sharersOf: () => Promise.resolve([]),
    facts: () => ({
      name: DRIVER,
      pluginCapabilities: new Set(['CONTROLLER_SERVICE']),
      controllerCapabilities: new Set(['CREATE_DELETE_VOLUME']),
    }),
    options: { ...DEFAULT_OPTIONS, identity: 'test' },
    timeoutMs,
    writeAllowanceMs: 30_000,
    areSecretsWatched: false,
    usesClaimFinalizer: false,
    isSoftState: false,
    retryMaxMs: 300_000,
    endpoint: 'unix:///gateway',
    newOwner: () => `run-${(runs += 1)}`,
    clock: systemClock,
    log: silentLog,
  };
  // The status of each key, which the consumer keeps in Redis.
  const reasons = new Map<string, string>();
  const backoffs = new Map<string, { readonly scope: string; readonly ms: number }>();
  const runOf = async (key: JobKey, process: (run: Run) => Promise<Outcome>): Promise<Outcome> => {
    const infeasible = backoffs.get(key.uid);
    const run = {
      signal: new AbortController().signal,
      queuedMs: Date.now(),
      count: 1,
      reachedDriver: () => undefined,
      lastReason: () => Promise.resolve(reasons.get(key.uid)),
      infeasibleBackoffMs: (scope: string) =>
        Promise.resolve(infeasible?.scope === scope ? infeasible.ms : 0),
    };
    const outcome = await runToOutcome(key, silentLog, () => process(run));
    if (outcome.kind === 'done') reasons.delete(key.uid);
    else reasons.set(key.uid, shownReason(outcome.reason));
    if (outcome.kind === 'retry' && outcome.infeasibleScope !== undefined)
      backoffs.set(key.uid, { scope: outcome.infeasibleScope, ms: outcome.minDelayMs ?? 0 });
    else if (outcome.kind !== 'later') backoffs.delete(key.uid);
    return outcome;
  };
  const keyOf = (object: Claim | Volume, kind: JobKey['kind']): JobKey => ({
    kind,
    uid: object.metadata.uid,
    namespace: object.metadata.namespace ?? '',
    name: object.metadata.name,
  });
  return {
    parts,
    cluster,
    kube,
    redis,
    redisUrl: server.url,
    dir,
    driver,
    gateway,
    events,
    metrics,
    set onCall(next: Hook) {
      hook = next;
    },
    async claim({
      name = `claim-${(claims += 1)}`,
      className = `class-${name}`,
      parameters = {},
      reclaimPolicy = 'Delete',
    } = {}) {
      const cls = {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'StorageClass',
        metadata: { name: className },
        provisioner: DRIVER,
        parameters,
        reclaimPolicy,
      };
      if (!classes.has(className))
        classes.set(className, await kube.create<Class>(resources.classes, undefined, cls));
      return kube.create<Claim>(resources.claims, 'default', {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: {
          name,
          namespace: 'default',
          annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER },
        },
        spec: {
          storageClassName: className,
          accessModes: ['ReadWriteOnce'],
          resources: { requests: { storage: '1Mi' } },
        },
      });
    },
    provision: (claim, change = {}, seen) => {
      const key = keyOf(claim, 'claim');
      const deps = group({ ...parts, ...change });
      return runOf(key, (run) =>
        reconcileClaim(deps, key, seen === undefined ? run : { ...run, shown: { seen } }),
      );
    },
    remove: (volume, change = {}) => {
      const key = keyOf(volume, 'volume');
      return runOf(key, (run) => reconcileVolume(group({ ...parts, ...change }), key, run));
    },
    volumeOf: (claim) => kube.get<Volume>(resources.volumes, { name: `pvc-${claim.metadata.uid}` }),
    setPhase: (volume, phase) =>
      kube.patch<Volume>(
        resources.volumes,
        { name: volume.metadata.name },
        { type: 'merge', body: { status: { phase } }, subresource: 'status' },
      ),
    newRecords: createRecords,
    record: (id) => redis.hgetall(`{csi}:volume:${DRIVER}:${id}`),
    settle: async (id) => void (await redis.hset(`{csi}:volume:${DRIVER}:${id}`, 'call', '1')),
    async reset() {
      hook = () => undefined;
      events.length = 0;
      (driver.calls as DriverCall[]).length = 0;
      await redis.flushall();
      await redisDataEpochStore(redis, 'csi', DRIVER).begin({
        id: 'e',
        quarantineMs: 0,
        sequence: 0,
      });
      // As a process that has just started: it knows of no record in the Redis that was emptied.
      records = createRecords();
      await records.seenDataEpoch();
    },
    async close() {
      csi.close();
      await gateway.close(0);
      await driver.close();
      await kube.close();
      await cluster.close();
      redis.disconnect();
      await server.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
