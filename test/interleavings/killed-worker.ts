import { Redis } from 'ioredis';
import { CsiClient } from '#src/gateway-client/client.ts';
import { reconcileVolume } from '#src/jobs/volume/reconcile-volume.ts';
import { group, type Parts } from '../jobs/parts.ts';
import { reconcileClaim } from '#src/jobs/claim/reconcile-claim.ts';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import type { Class } from '#src/kube/objects.ts';
import { classes, volumes } from '#src/kube/resources.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { NO_CAPACITY_HINTS } from '#src/capacity/hints.ts';
import { createOperationCounts } from '#src/jobs/operation-counts.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { VolumeNames } from '#src/records/names-in-use.ts';
import { openSources } from '#src/records/open-records.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { DEFAULT_OPTIONS } from '../harness/default-options.ts';

/** A place in a run at which the worker is killed. */
export type Place = 'opened' | 'answered' | 'written' | 'closed' | 'never';

/** What the parent process orders, as JSON. */
export interface Orders {
  readonly redisUrl: string;
  readonly kubeconfig: string;
  readonly gateway: string;
  readonly driver: string;
  readonly className: string;
  readonly jobs: readonly JobKey[];
  readonly place: Place;
}

/** A worker process for crash-points.test.ts: runs its jobs at the same time, and kills itself when
 * all of them have come to the place. */
const orders = JSON.parse(process.argv[2] ?? '{}') as Orders;
let arrived = 0;

/** Waits until all jobs have come here, then kills the process by SIGKILL, as the kernel does when
 * memory runs out. */
async function pass(place: Place): Promise<void> {
  if (place !== orders.place) return;
  arrived += 1;
  if (arrived === orders.jobs.length) process.kill(process.pid, 'SIGKILL');
  await new Promise(() => undefined);
}

class KilledRecords extends VolumeRecords {
  override async openCreate(
    ...args: Parameters<VolumeRecords['openCreate']>
  ): ReturnType<VolumeRecords['openCreate']> {
    const opened = await super.openCreate(...args);
    await pass('opened');
    return opened;
  }
  override async openDelete(
    ...args: Parameters<VolumeRecords['openDelete']>
  ): ReturnType<VolumeRecords['openDelete']> {
    const opened = await super.openDelete(...args);
    await pass('opened');
    return opened;
  }
  override async closeStored(...args: Parameters<VolumeRecords['closeStored']>): Promise<void> {
    await pass('written');
    await super.closeStored(...args);
    await pass('closed');
  }
  override async closeGone(...args: Parameters<VolumeRecords['closeGone']>): Promise<void> {
    await super.closeGone(...args);
    await pass('closed');
  }
}

const redis = new Redis(orders.redisUrl);
const kube = createKubeClient({
  access: await loadClusterAccess({ kubeconfig: orders.kubeconfig, env: {} }),
  userAgent: 'killed-worker',
  log: silentLog,
});
const csi = new CsiClient({ address: { kind: 'unix', path: orders.gateway }, log: silentLog });
const cls = await kube.get<Class>(classes, { name: orders.className });
let owners = 0;
const records = new KilledRecords({
  redis,
  prefix: 'csi',
  driver: orders.driver,
  ownMs: 20_000,
  settleMs: 200,
});
await records.learnDataEpoch();
const parts: Parts = {
  kube: {
    get: (...args) => kube.get(...args),
    list: (...args) => kube.list(...args),
    createUnread: (...args) => kube.createUnread(...args),
    patch: (...args) => kube.patch(...args),
    update: (...args) => kube.update(...args),
    async delete<T>(...args: Parameters<typeof kube.delete>) {
      const left = await kube.delete<T>(...args);
      if (args[0] === volumes) await pass('written');
      return left;
    },
  },
  csi: {
    async createVolume(...args) {
      const answer = await csi.createVolume(...args);
      await pass('answered');
      return answer;
    },
    async deleteVolume(...args) {
      const answer = await csi.deleteVolume(...args);
      await pass('answered');
      return answer;
    },
  },
  records,
  openSources: () => openSources(redis, 'csi', orders.driver),
  names: new VolumeNames(redis, 'csi', orders.driver),
  events: { record: () => undefined },
  counts: createOperationCounts(new Registry()),
  capacity: NO_CAPACITY_HINTS,
  classOf: () => cls,
  attachedTo: () => [],
  topology: () => undefined,
  sharersOf: () => Promise.resolve([]),
  facts: () => ({
    name: orders.driver,
    pluginCapabilities: new Set(['CONTROLLER_SERVICE']),
    controllerCapabilities: new Set(['CREATE_DELETE_VOLUME']),
  }),
  options: { ...DEFAULT_OPTIONS, identity: 'killed-worker' },
  timeoutMs: 10_000,
  writeAllowanceMs: 10_000,
  areSecretsWatched: false,
  usesClaimFinalizer: false,
  retryMaxMs: 1_000,
  endpoint: orders.gateway,
  newOwner: () => `killed-worker-${process.pid}-${(owners += 1)}`,
  clock: systemClock,
  log: silentLog,
};
const run = {
  signal: new AbortController().signal,
  lastReason: () => Promise.resolve(undefined),
  reachedDriver: () => undefined,
  infeasibleBackoffMs: () => Promise.resolve(0),
};
// Ends the process when its test has failed.
setTimeout(() => process.exit(3), 100_000);
await Promise.all(
  orders.jobs.map((job) =>
    (job.kind === 'claim' ? reconcileClaim : reconcileVolume)(group(parts), job, run),
  ),
);
process.exit(0);
