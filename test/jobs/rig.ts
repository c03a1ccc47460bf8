import { performance } from 'node:perf_hooks';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach } from 'node:test';
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
import { createKubeClient } from '#src/kube/client.ts';
import type { EventInput } from '#src/kube/events.ts';
import type { Claim, Class, Secret, Volume } from '#src/kube/objects.ts';
import * as resources from '#src/kube/resources.ts';
import { STORAGE_PROVISIONER } from '#src/kube/keys.ts';
import { ClassLimits } from '#src/jobs/class-limit.ts';
import type { KeyToQueue } from '#src/queue/contract.ts';
import { listOpenSources } from '#src/journal/list-journal.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { type DriverCall, startSampleDriver } from '../../sandbox/driver/server.ts';
import { startRedisServer } from '../harness/redis-server.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { DEFAULT_OPTIONS } from '../harness/default-options.ts';
import { claimTools } from './claim-cases.ts';
import { JobRuns } from './job-runs.ts';
import { volumeTools } from './stored-volume.ts';

export const DRIVER = 'sample.csi.sutler.dev';
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
export const ALPHA_SELECTED_NODE = 'volume.alpha.kubernetes.io/selected-node';

type Hook = (call: DriverCall) => unknown;

/** The processors of claims and volumes on real parts: Redis, gateway, sample driver and the
 * sandbox's API server, all on loopback in this process. */
export type Rig = Awaited<ReturnType<typeof openRig>>;

/** The rig without its tools for claims (claim-cases.ts) and volumes (stored-volume.ts). */
export type Bed = Awaited<ReturnType<typeof openBed>>;

/** Opens a rig for the suite that calls this, and resets it before each test.
 * @param set  gets the rig before the first test */
export function useRig(set: (rig: Rig) => void, o: RigOptions = {}): void {
  let rig: Rig;
  before(async () => set((rig = await openRig(o))));
  after(() => rig.close());
  beforeEach(() => rig.reset());
}

interface RigOptions {
  /** Calls that the gateway lets by at once. */
  readonly maxInFlight?: number;
}

export async function openRig(o: RigOptions = {}) {
  const bed = await openBed(o);
  return Object.assign(bed, claimTools(bed), volumeTools(bed));
}

/** A claim and, where it is new, its class. */
export interface NewClaim {
  readonly name?: string;
  readonly namespace?: string;
  readonly finalizers?: readonly string[];
  readonly phase?: 'Bound';
  readonly className?: string;
  readonly parameters?: Readonly<Record<string, string>>;
  readonly reclaimPolicy?: 'Delete' | 'Retain';
  readonly spec?: Partial<Claim['spec']>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Parameters of a class whose driver gets the secret of the claim's name. */
export const WITH_SECRET = {
  'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
  'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
};

/** How a claim without a job gets one. */
export interface ClaimJob {
  /** Nobody has noted the claim in the journal. */
  readonly isUnnoted?: boolean;
  /** As after the begin of a leader: calls of an earlier job may be at work for so long. */
  readonly doubtMs?: number;
}

async function openBed(o: RigOptions) {
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
  let serial = 0;
  const timeoutMs = 5000;
  const jobs = new JobRuns({ redisUrl: server.url, kube, driver: DRIVER });
  await jobs.open();
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
  const setPhase = <T extends Claim | Volume>(
    resource: resources.Resource,
    { metadata: { namespace = '', name } }: T,
    phase: string,
  ) =>
    kube.patch<T>(
      resource,
      { namespace, name },
      { type: 'merge', body: { status: { phase } }, subresource: 'status' },
    );
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
    driver,
    gateway,
    events,
    /** The metrics that the processors write. */
    metrics,
    /** Runs before each driver call; what it returns is the driver's answer. */
    set onCall(next: Hook) {
      hook = next;
    },
    /** Creates a claim that the volume controller has annotated; its class too, if that is new. */
    async claim({
      name = `claim-${(serial += 1)}`,
      namespace = 'default',
      finalizers = [],
      phase,
      className = `class-${name}`,
      parameters = {},
      reclaimPolicy = 'Delete',
      spec = {},
      annotations = {},
    }: NewClaim = {}) {
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
      const created = await kube.create<Claim>(resources.claims, namespace, {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: {
          name,
          namespace,
          finalizers,
          annotations: { [STORAGE_PROVISIONER]: DRIVER, ...annotations },
        },
        spec: {
          storageClassName: className,
          accessModes: ['ReadWriteOnce'],
          resources: { requests: { storage: '1Mi' } },
          ...spec,
        },
      });
      return phase === undefined ? created : setPhase(resources.claims, created, phase);
    },
    /** Creates an empty namespace. */
    async namespace(): Promise<string> {
      const name = `space-${(serial += 1)}`;
      const metadata = { name };
      await kube.create(resources.namespaces, undefined, {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata,
      });
      return name;
    },
    /** Writes a secret in the namespace `default`. */
    async secret(name: string, values: Readonly<Record<string, string | Uint8Array>>) {
      const inBase64 = (value: string | Uint8Array): string =>
        (typeof value === 'string' ? Buffer.from(value) : Buffer.from(value)).toString('base64');
      const data = Object.fromEntries(
        Object.entries(values).map(([key, value]) => [key, inBase64(value)]),
      );
      const ref = { namespace: 'default', name };
      if ((await kube.get(resources.secrets, ref)) !== undefined)
        return kube.patch<Secret>(resources.secrets, ref, { type: 'merge', body: { data } });
      const secret = { apiVersion: 'v1', kind: 'Secret', metadata: ref, data };
      return kube.create<Secret>(resources.secrets, 'default', secret);
    },
    /** A driver with further controller capabilities. */
    able(...capabilities: readonly string[]): Pick<Dependencies, 'facts'> {
      const facts = parts.facts();
      const all = new Set([...facts.controllerCapabilities, ...capabilities]);
      return { facts: () => ({ ...facts, controllerCapabilities: all }) };
    },
    /** Makes a run of the claim's job, which gets one where it has none. */
    provision: (
      claim: Claim,
      change: Partial<Dependencies> = {},
      { isUnnoted = false, doubtMs }: ClaimJob = {},
    ) => {
      const cls = classes.get(claim.spec.storageClassName ?? '');
      const noted = isUnnoted ? undefined : { claim, cls };
      return run(keyOf(claim), reconcileClaim, change, { noted, doubtMs });
    },
    /** Makes a run of the volume's job, which gets one where it has none. */
    remove: (volume: Volume, change: Partial<Dependencies> = {}) =>
      run(keyOf(volume), reconcileVolume, change),
    volumeOf: (claim: Claim) =>
      kube.get<Volume>(resources.volumes, { name: `pvc-${claim.metadata.uid}` }),
    /** Sets the phase as the volume controller does. */
    setPhase: (volume: Volume, phase: 'Bound' | 'Released') =>
      setPhase(resources.volumes, volume, phase),
    /** The jobs, and the leader that adds them. */
    jobs,
    /** How long calls of earlier runs of the job may be at work in the driver; undefined: no call
     * was begun, or there is no job. */
    doubtMs: (object: Claim | Volume) => jobs.doubtMs(keyOf(object)),
    /** Lets the time pass until calls of earlier runs are over. */
    endDoubt: (object: Claim | Volume) => jobs.endDoubt(keyOf(object)),
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
