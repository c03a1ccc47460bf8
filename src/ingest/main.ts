import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { openDriver } from '../gateway-client/open-driver.ts';
import { startElector } from '../election/elector.ts';
import type { Elector } from '../election/elector.ts';
import { kubeLeaseStore } from '../election/kube-lease-store.ts';
import { leaseName, leaseTimesProblem } from '../election/lease.ts';
import { readClusterUid } from '../kube/cluster-uid.ts';
import { openKubeClient } from '../kube/open-client.ts';
import { createEventRecorder, eventComponent } from '../kube/events.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { redisAuditLedger } from '../records/audit-ledger.ts';
import { redisActiveGateway } from '../records/active-gateway.ts';
import { watchClusterMarker } from '../redis/cluster-marker.ts';
import { openRedis } from '../redis/connection.ts';
import { createProducer } from '../queue/producer.ts';
import { watchSettings } from '../redis/settings-watch.ts';
import { redisIncarnationStore } from '../records/incarnation.ts';
import { ownershipMs } from '../records/flags.ts';
import { openJobs } from '../records/open-jobs.ts';
import { openRecords } from '../records/open-records.ts';
import { WaitList } from '../queue/wait-list.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { startHttp } from '../runtime/http.ts';
import { runProcess } from '../runtime/process.ts';
import type { Invocation, ProcessContext } from '../runtime/process.ts';
import { volumeFailedDelete } from '../volumes/deletion-event.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import { startGatewayFailover } from './gateway-failover.ts';
import type { GatewayFailover } from './gateway-failover.ts';
import { startDemandWatch } from './demand-watch.ts';
import { flags, summary } from './flags.ts';
import { LeaderGate } from './leader-gate.ts';
import { startPeriodicAudit } from './periodic-audit.ts';
import { leaseIncarnationStore } from './lease-incarnation-store.ts';
import { IncarnationCheck } from './incarnation-check.ts';
import { IDENTITY_PREFIX, ForeignLeader } from './foreign-leader.ts';
import { startSnapshotSweep } from './snapshot-sweep.ts';
import { startWaitWatch } from './wait-watch.ts';
import type { WaitWatch } from './wait-watch.ts';
import { startWatcher } from './watcher.ts';
import type { RefusedVolume, Watcher } from './watcher.ts';

/** The ingest process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'ingest', summary, table: flags, start });
}

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, log, metrics, closers } = p;
  const timing = {
    leaseDurationMs: f.leaderElectionLeaseDurationMs,
    renewDeadlineMs: f.leaderElectionRenewDeadlineMs,
    retryPeriodMs: f.leaderElectionRetryPeriodMs,
  };
  const wrong = leaseTimesProblem(timing);
  if (wrong !== undefined) throw new UsageError(wrong);

  const kube = await openKubeClient('ingest', p);
  const { gateways, driver } = await openDriver(p);
  const link = openRedis({ url: f.redisUrl, role: 'plain', name: 'sutler-ingest', log });
  closers.add('Redis', () => link.close());
  const settings = watchSettings(link, log);
  closers.add('Redis settings', () => settings.close());
  let onOurs = (): void => undefined;
  const marker = watchClusterMarker({
    link,
    prefix: f.redisPrefix,
    clusterUid: () => readClusterUid(kube),
    onChange: (isOurs) => {
      if (isOurs) onOurs();
    },
    log,
  });
  closers.add('cluster marker', () => marker.stop());

  const health: {
    watcher?: Watcher;
    producer?: { readonly trouble: string | undefined };
    elector?: Elector;
    election?: GatewayFailover;
  } = {};
  if (f.httpEndpoint !== '') {
    const http = await startHttp({
      address: f.httpEndpoint,
      metrics,
      metricsPath: f.metricsPath,
      live: [
        {
          name: 'leader-election',
          check: () =>
            health.elector?.isHealthy() === false
              ? 'failed to renew leadership in time'
              : undefined,
        },
      ],
      ready: [
        { name: 'redis', check: () => health.producer?.trouble ?? link.trouble },
        { name: 'redis-cluster', check: () => marker.trouble },
        { name: 'redis-settings', check: () => settings.trouble },
        { name: 'driver', check: () => driver.trouble },
        { name: 'active-gateway', check: () => health.election?.trouble },
        {
          name: 'kubernetes',
          check: () =>
            health.watcher === undefined ? 'waiting for the driver first' : health.watcher.trouble,
        },
      ],
      log,
    });
    closers.add('HTTP', () => http.close());
    p.announce({ http: http.url });
  } else p.announce({});

  const found = await driver.known(p.stopping);
  if (found === undefined) return;
  const producer = createProducer({
    redisUrl: f.redisUrl,
    prefix: f.redisPrefix,
    driver: found.name,
    onRedisBack: () => (gate.isAllowing ? watcher.outstanding() : []),
    log,
    metrics,
  });
  closers.add('producer', () => producer.close());
  health.producer = producer;
  const gate = new LeaderGate(producer, {
    holdsLease: () => marker.isOurs && (health.elector?.isLeader ?? !f.leaderElection),
    keepMs: 2 * f.leaderElectionLeaseDurationMs,
  });
  const events = createEventRecorder({
    client: kube,
    component: eventComponent(found.name, p.env),
    log,
    metrics,
  });
  closers.add('events', () => events.close(1_000));
  const tellRefused = ({ volume, reason }: RefusedVolume): void => {
    if (gate.isAllowing) events.record(volumeFailedDelete(volume, reason));
  };
  const wakes: { watch?: WaitWatch } = {};
  const watcher = startWatcher({
    client: kube,
    driver: { ...found, inTreeName: inTreeNameOf(found.name) },
    gate,
    onObject: (object) => wakes.watch?.changed(object),
    onRefused: tellRefused,
    log,
    metrics,
  });
  closers.add('watcher', () => watcher.stop());
  health.watcher = watcher;
  try {
    await watcher.synced(p.stopping);
  } catch (error) {
    if (p.stopping.aborted) return;
    throw error;
  }

  /** Everything that needs a job, open records included: their claims may be gone, and only the
   * record still knows of the volume. */
  const enqueueAll = async (reason: string): Promise<void> => {
    let count = 0;
    for (const key of watcher.outstanding()) {
      gate.ensureQueued(key);
      count += 1;
    }
    try {
      for (const key of (await openJobs(link.redis, f.redisPrefix, found.name)).values())
        gate.ensureQueued(key);
    } catch (error) {
      log.warn(
        { err: error },
        'the open volume records could not be listed; the next resync looks again',
      );
    }
    for (const refused of watcher.refused()) tellRefused(refused);
    log.info({ reason, count }, 'enqueued everything outstanding');
  };
  link.onReady((first) => {
    if (!first && gate.isAllowing) void enqueueAll('Redis came back');
  });
  const resync = setInterval(() => {
    if (gate.isAllowing) void enqueueAll('resync');
  }, timerMs(f.resyncIntervalMs));
  closers.add('resync', () => clearInterval(resync));

  const name = leaseName(found.name);
  const namespace = await leaseNamespace(f.leaderElectionNamespace, p.env);
  const incarnations = redisIncarnationStore(link.redis, f.redisPrefix, found.name);
  const history = new IncarnationCheck({
    incarnations,
    store: leaseIncarnationStore({ client: kube, namespace, name }),
    ownershipMs: ownershipMs(f),
    log,
  });
  let looking: Promise<void> | undefined;
  const yielding = new ForeignLeader(incarnations, log);
  const look = (): void => {
    yielding.observe(health.elector?.isLeader === true ? undefined : health.elector?.holder);
    if (!gate.isAllowing) return;
    looking ??= history
      .check()
      .then(
        (isLost) => (isLost ? enqueueAll('Redis lost what it held') : undefined),
        (error: unknown) =>
          log.debug({ err: error }, 'could not compare the history of Redis; looking again'),
      )
      .finally(() => (looking = undefined));
  };
  const looks = setInterval(look, HISTORY_LOOK_MS);
  closers.add('Redis history', () => clearInterval(looks));

  if (f.auditIntervalMs > 0 && found.controllerCapabilities.has('LIST_VOLUMES')) {
    const auditing = startPeriodicAudit({
      ports: {
        csi: gateways.asks,
        kube,
        openRecords: () => openRecords(link.redis, f.redisPrefix, found.name),
        ledger: redisAuditLedger(link.redis, f.redisPrefix, found.name),
        driver: found.name,
        timeoutMs: f.timeoutMs,
        minAgeMs: f.auditMinAgeMs,
        nowMs: () => systemClock.nowMs(),
      },
      events,
      regarding: { kind: leases.kind, apiVersion: apiVersionOf(leases), namespace, name, uid: '' },
      intervalMs: f.auditIntervalMs,
      isLeading: () => gate.isAllowing,
      log,
      metrics,
    });
    closers.add('audit', () => auditing.stop());
  }

  const election = startGatewayFailover({
    pool: gateways,
    active: redisActiveGateway(link.redis, f.redisPrefix, found.name),
    driver: found.name,
    timeoutMs: f.timeoutMs,
    ownershipMs: ownershipMs(f),
    isLeading: () => gate.isAllowing,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('gateway election', () => election.close());
  health.election = election;

  const demandWatch = startDemandWatch({
    client: kube,
    watchSecrets: f.watchSecrets,
    onChange: (object) => wakes.watch?.changed(object),
    clock: systemClock,
    log,
  });
  closers.add('watch on demand', () => demandWatch.stop());
  const waitWatch = startWaitWatch({
    waits: new WaitList(link.redis, f.redisPrefix, found.name),
    versionOf: (object) => watcher.versionOf(object) ?? demandWatch.versionOf(object),
    onWaiting: (objects) => demandWatch.follow(objects),
    isLeading: () => gate.isAllowing,
    driver: found.name,
    clock: systemClock,
    log,
    metrics,
  });
  closers.add('wait watch', () => waitWatch.stop());
  wakes.watch = waitWatch;

  const sweeping = startSnapshotSweep({
    client: kube,
    restored: () => watcher.restoredSnapshots(),
    ensureQueued: (key) => gate.ensureQueued(key),
    isLeading: () => gate.isAllowing,
    driver: found,
    intervalMs: f.snapshotOrphanSweepIntervalMs,
    log,
  });
  closers.add('snapshot sweep', () => sweeping?.stop());

  await marker.ours(p.stopping);
  if (p.stopping.aborted) return;
  onOurs = () => {
    if (!gate.isAllowing) return;
    // Passes on what was missed meanwhile.
    gate.allow();
    void enqueueAll('this Redis is ours again');
  };
  const lead = (): void => {
    gate.allow();
    log.info({ driver: found.name }, 'leading: claims and volumes are enqueued here');
    election.checkNow();
    look();
    void enqueueAll('leading');
    sweeping?.begin();
  };
  if (!f.leaderElection) return lead();
  const elector = startElector({
    store: kubeLeaseStore({ client: kube, namespace, name, labels: f.leaderElectionLabels, log }),
    leaseName: name,
    identity: `${IDENTITY_PREFIX}${p.env['HOSTNAME'] ?? 'local'}-${p.pid}-${randomBytes(3).toString('hex')}`,
    ...timing,
    clock: systemClock,
    log,
    metrics,
    onStartedLeading: lead,
    onStoppedLeading: (reason) => {
      gate.block();
      log.warn({ reason }, 'not leading any more: another ingest enqueues');
    },
  });
  health.elector = elector;
  closers.add('elector', async () => {
    gate.block();
    await elector.close();
  });
}

/** How often the leader compares what Redis holds with what it held. */
const HISTORY_LOOK_MS = 1_000;

const SERVICE_ACCOUNT_NAMESPACE = '/var/run/secrets/kubernetes.io/serviceaccount/namespace';

/** The flag, else POD_NAMESPACE, else the pod's own, else default (spec 05 §4). */
async function leaseNamespace(
  flag: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  if (flag !== '') return flag;
  const fromEnv = env['POD_NAMESPACE'] ?? '';
  if (fromEnv !== '') return fromEnv;
  const mounted = await readFile(SERVICE_ACCOUNT_NAMESPACE, 'utf8').catch(() => '');
  return mounted.trim() === '' ? 'default' : mounted.trim();
}
