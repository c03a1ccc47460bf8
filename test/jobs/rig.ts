import { performance } from 'node:perf_hooks';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Gateway } from '#src/csi-gateway/server.ts';
import { reconcileVolume } from '#src/jobs/volume/reconcile-volume.ts';
import { CapacityHints } from '#src/capacity/hints.ts';
import { createOperationCounts } from '#src/jobs/operation-counts.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { RefusedSizes } from '#src/jobs/claim/take-claim.ts';
import { reconcileClaim } from '#src/jobs/claim/reconcile-claim.ts';
import { runToOutcome } from '#src/jobs/start-workers.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { EventInput } from '#src/kube/events.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import * as resources from '#src/kube/resources.ts';
import { ClassLimits } from '#src/jobs/class-limit.ts';
import type { KeyToQueue } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { listOpenSources } from '#src/journal/list-journal.ts';
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
import { JobRuns } from './job-runs.ts';

export const DRIVER = 'sample.csi.sutler.dev';

type Hook = (call: DriverCall) => unknown;

/** The processors of claims and volumes on real parts: Redis, gateway, sample driver and the
 * sandbox's API server, all on loopback in this process. */
export interface Rig {
  readonly parts: Dependencies;
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
  /** Makes a run of the claim's job, which gets one where it has none. */
  provision(claim: Claim, parts?: Partial<Dependencies>, job?: ClaimJob): Promise<Outcome>;
  /** Makes a run of the volume's job, which gets one where it has none. */
  remove(volume: Volume, parts?: Partial<Dependencies>): Promise<Outcome>;
  volumeOf(claim: Claim): Promise<Volume | undefined>;
  /** Sets the phase as the volume controller does. */
  setPhase(volume: Volume, phase: 'Bound' | 'Released'): Promise<Volume>;
  /** The jobs, and the leader that adds them. */
  readonly jobs: JobRuns;
  /** How long calls of earlier runs of the job may be at work in the driver; undefined: no call was
   * begun, or there is no job. */
  doubtMs(object: Claim | Volume): Promise<number | undefined>;
  /** Lets the time pass until calls of earlier runs are over. */
  endDoubt(object: Claim | Volume): Promise<void>;
  reset(): Promise<void>;
  close(): Promise<void>;
}

/** How a claim without a job gets one. */
export interface ClaimJob {
  /** Nobody has noted the claim in the journal. */
  readonly isUnnoted?: boolean;
  /** As after the begin of a leader: calls of an earlier job may be at work for so long. */
  readonly doubtMs?: number;
}

/** @param o.maxInFlight  calls that the gateway lets by at once
 * @param o.hasJobs      absent: yes; no: other processes take the jobs */
export async function openRig({
  hasJobs = true,
  ...o
}: { readonly maxInFlight?: number; readonly hasJobs?: boolean } = {}): Promise<Rig> {
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
  const gateway = new Gateway({
    driver: { kind: 'unix', path: driver.socket },
    listen: [listen],
    allowAll: false,
    maxInFlight: 500,
    probeTimeoutMs: 5000,
    maxMessageBytes: 1 << 20,
    maxRequestBytes: 1 << 20,
    logsMessages: false,
    clock: systemClock,
    log: silentLog,
    metrics: new Registry(),
    ...o,
  });
  await gateway.start();
  while (gateway.trouble !== undefined) await systemClock.sleep(10);
  const csi = new CsiClient({ address: listen });
  const classes = new Map<string, Class>();
  const events: EventInput[] = [];
  let claims = 0;
  const timeoutMs = 5000;
  const jobs = new JobRuns({ redisUrl: server.url, kube, driver: DRIVER });
  if (hasJobs) await jobs.open();
  // As the recorder does: a warning that was told already is only counted.
  const told = new Set<string>();
  const recordOnce = (event: EventInput): void => {
    const { regarding, type, reason, message } = event;
    const what = JSON.stringify([regarding.uid, reason, message]);
    if (type === 'Normal' || !told.has(what)) events.push(event);
    told.add(what);
  };
  const parts: Dependencies = {
    kube,
    csi,
    freshClaim: () => undefined,
    lease: {
      judge: () => ({ kind: 'may', untilMs: performance.now() + 10_000 }),
      pause: undefined,
    },
    journal: jobs.journalPlace,
    openSources: () => listOpenSources(kube, jobs.journalPlace),
    classLimits: new ClassLimits({ redis, prefix: 'csi', driver: DRIVER, keepMs: 60_000 }),
    events: { record: (event) => recordOnce(event) },
    counts: createOperationCounts(metrics),
    capacity: new CapacityHints(undefined, silentLog),
    classOf: (name) => classes.get(name),
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
    doubtMs: 60_000,
    bindsAtOnce: true,
    refusedSizes: new RefusedSizes(systemClock),
    retryMaxMs: 300_000,
    endpoint: 'unix:///gateway',
    clock: systemClock,
    log: silentLog,
  };
  const run = (
    key: KeyToQueue,
    reconcile: typeof reconcileClaim | typeof reconcileVolume,
    change: Partial<Dependencies>,
    job?: Parameters<JobRuns['run']>[2],
  ) => {
    const deps = { ...parts, ...change };
    return jobs.run(
      key,
      (each) => runToOutcome(key, silentLog, () => reconcile(deps, key, each)),
      job,
    );
  };
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
    provision: (claim, change = {}, { isUnnoted = false, doubtMs } = {}) => {
      const cls = classes.get(claim.spec.storageClassName ?? '');
      const noted = isUnnoted ? undefined : { claim, cls };
      return run(keyOf(claim), reconcileClaim, change, { noted, doubtMs });
    },
    remove: (volume, change = {}) => run(keyOf(volume), reconcileVolume, change),
    volumeOf: (claim) => kube.get<Volume>(resources.volumes, { name: `pvc-${claim.metadata.uid}` }),
    setPhase: (volume, phase) =>
      kube.patch<Volume>(
        resources.volumes,
        { name: volume.metadata.name },
        { type: 'merge', body: { status: { phase } }, subresource: 'status' },
      ),
    jobs,
    doubtMs: (object) => jobs.doubtMs(keyOf(object)),
    endDoubt: (object) => jobs.endDoubt(keyOf(object)),
    reset() {
      hook = () => undefined;
      events.length = 0;
      (driver.calls as DriverCall[]).length = 0;
      return Promise.resolve();
    },
    async close() {
      await jobs.close();
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

/** The key of an object, as ingest makes it. */
export function keyOf(object: Claim | Volume): KeyToQueue {
  const { uid, namespace = '', name } = object.metadata;
  if (namespace !== '') return { kind: 'claim', uid, namespace, name };
  const claimUid = (object as Volume).spec.claimRef?.uid;
  const ofClaim = claimUid === undefined ? {} : { claimUid };
  return { kind: 'volume', uid, namespace, name, ...ofClaim };
}
