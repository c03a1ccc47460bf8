import { randomBytes, randomInt } from 'node:crypto';
import { openDriver } from '../gateway-client/open-driver.ts';
import { readClusterUid } from '../kube/cluster-uid.ts';
import { openKubeClient } from '../kube/open-client.ts';
import { createEventRecorder, eventComponent } from '../kube/events.ts';
import { watchClusterMarker } from '../redis/cluster-marker.ts';
import { openRedis } from '../redis/connection.ts';
import { startConsumer } from '../queue/consumer.ts';
import type { Consumer } from '../queue/consumer.ts';
import { watchSettings } from '../redis/settings-watch.ts';
import { ownershipMs } from '../records/flags.ts';
import { openSources } from '../records/open-sources.ts';
import { VolumeNames } from '../records/names-in-use.ts';
import { VolumeRecords } from '../records/volume-record.ts';
import { systemClock, timerMs } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { startHttp } from '../runtime/http.ts';
import { runProcess } from '../runtime/process.ts';
import type { Invocation, ProcessContext } from '../runtime/process.ts';
import { parseFeatureGates } from '../volumes/feature-gates.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';
import { reconcileVolume } from './volume/reconcile-volume.ts';
import { flags, summary } from './flags.ts';
import { createOperationCounts } from './operation-counts.ts';
import type { ProcessorPorts } from './ports.ts';
import { reconcileClaim } from './claim/reconcile-claim.ts';
import { reconcileSnapshot } from './snapshot/reconcile-snapshot.ts';
import { runToOutcome } from './run-to-outcome.ts';
import { startCaches } from './caches.ts';

/** The jobs process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'jobs', summary, table: flags, start });
}

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, log, metrics, closers } = p;
  if (f.volumeNameUuidLength === 0)
    throw new UsageError(
      '--volume-name-uuid-length: 0 would give all claims one name; choose -1 or 1 to 32',
    );
  const gates = parseFeatureGates(f.featureGates);
  if (typeof gates === 'string') throw new UsageError(`--feature-gates: ${gates}`);
  const instance = `${p.env['HOSTNAME'] ?? 'local'}-${p.pid}-${randomBytes(3).toString('hex')}`;

  const kube = await openKubeClient('jobs', p);
  const { gateways, driver } = await openDriver(p);
  const link = openRedis({
    url: f.redisUrl,
    role: 'plain',
    name: `sutler-records:${instance}`,
    log,
  });
  closers.add('Redis', () => link.close());
  const settings = watchSettings(link, log);
  closers.add('Redis settings', () => settings.close());

  const views = startCaches({ client: kube, log, metrics });
  closers.add('views', () => views.stop());
  const consumers: Consumer[] = [];
  const marker = watchClusterMarker({
    link,
    prefix: f.redisPrefix,
    clusterUid: () => readClusterUid(kube),
    onChange: (isOurs) => {
      for (const consumer of consumers) void (isOurs ? consumer.resume() : consumer.pause());
    },
    log,
  });
  closers.add('cluster marker', () => marker.stop());
  if (f.httpEndpoint !== '') {
    const http = await startHttp({
      address: f.httpEndpoint,
      metrics,
      metricsPath: f.metricsPath,
      live: [
        {
          name: 'progress',
          check: () => consumers.map((c) => c.stuck).find((t) => t !== undefined),
        },
      ],
      ready: [
        { name: 'redis', check: () => link.trouble },
        { name: 'redis-cluster', check: () => marker.trouble },
        { name: 'redis-settings', check: () => settings.trouble },
        { name: 'driver', check: () => driver.trouble },
        { name: 'kubernetes', check: () => views.trouble },
        {
          name: 'queues',
          check: () =>
            consumers.length === 0
              ? 'not started yet'
              : consumers.map((c) => c.trouble).find((t) => t !== undefined),
        },
      ],
      log,
    });
    closers.add('HTTP', () => http.close());
    p.announce({ http: http.url });
  } else p.announce({});

  const found = await driver.known(p.stopping);
  if (found === undefined) return;
  await views.synced(found, p.stopping);
  if (p.stopping.aborted) return;
  const component = eventComponent(found.name, p.env);
  const events = createEventRecorder({ client: kube, component, log, metrics });
  closers.add('events', () => events.close(2_000));
  const records = new VolumeRecords({
    redis: link.redis,
    prefix: f.redisPrefix,
    driver: found.name,
    ownMs: ownershipMs(f),
    settleMs: f.settleTimeMs,
  });
  await records.learnIncarnation().catch(() => undefined);
  const tend = async (): Promise<void> => {
    if (!marker.isOurs) return;
    const rewritten = await records
      .rewriteLostRecords()
      .catch((error: unknown) =>
        log.debug({ err: error }, 'the open records could not be looked after'),
      );
    if (rewritten && rewritten.length > 0)
      log.warn({ records: rewritten.length }, 'wrote volume records again that Redis had lost');
  };
  const tending = setInterval(() => void tend(), TEND_MS);
  closers.add('open records', () => clearInterval(tending));
  const inTreeName = inTreeNameOf(found.name);
  const ports: ProcessorPorts = {
    kube,
    csi: gateways.calls,
    records,
    openSources: () => openSources(link.redis, f.redisPrefix, found.name),
    names: new VolumeNames(link.redis, f.redisPrefix, found.name),
    events,
    counts: createOperationCounts(metrics),
    classOf: views.classOf,
    attachedTo: views.attachedTo,
    driver: () => ({ ...driver.current(), inTreeName }),
    options: {
      ...f,
      gates,
      defaultFsType: f.defaultFstype,
      identity: `${Date.now()}-${randomInt(10_000)}-${found.name}`,
    },
    timeoutMs: f.timeoutMs,
    writeAllowanceMs: f.writeAllowanceMs,
    areSecretsWatched: f.watchSecrets,
    claimFinalizer: f.claimFinalizer,
    retryMaxMs: f.retryIntervalMaxMs,
    endpoint: gateways.sole,
    newOwner: ownerNames(instance),
    clock: systemClock,
    log,
  };
  await marker.ours(p.stopping);
  if (p.stopping.aborted) return;
  const common = {
    redisUrl: f.redisUrl,
    prefix: f.redisPrefix,
    driver: found.name,
    name: instance,
    backoff: { startMs: f.retryIntervalStartMs, maxMs: f.retryIntervalMaxMs },
    lockMs: timerMs(f.lockDurationMs),
    stalledCheckMs: Math.min(5_000, f.lockDurationMs / 2),
    log,
    metrics,
  };
  const work = [
    { kind: 'claim', run: reconcileClaim, concurrency: f.workerThreads },
    { kind: 'volume', run: reconcileVolume, concurrency: f.workerThreads },
    { kind: 'snapshot', run: reconcileSnapshot, concurrency: SNAPSHOTS_AT_ONCE },
  ] as const;
  for (const { kind, run, concurrency } of work) {
    // A consumer is a connection: none where ingest has nothing to hand over.
    if (kind === 'snapshot' && !found.controllerCapabilities.has('CREATE_DELETE_SNAPSHOT'))
      continue;
    const consumer = startConsumer({
      ...common,
      kind,
      concurrency,
      process: (key, context) => runToOutcome(key, log, () => run(ports, key, context)),
      onRedisEmptied: () => void tend(),
    });
    consumers.push(consumer);
    closers.add(`${kind}s consumer`, () => consumer.close(f.gracePeriodMs));
  }
  log.info({ driver: found.name, workers: f.workerThreads }, 'taking jobs');
}

/** Snapshots that our finalizer is taken off of, where ingest's sweep found it left over: there are
 * few, and none of them is urgent. */
const SNAPSHOTS_AT_ONCE = 2;

/** How often the records that this process left open are looked after. */
const TEND_MS = 2_000;

/** Unique per run: a run that was overtaken must never pass for the one that took over. */
function ownerNames(instance: string): () => string {
  let runs = 0;
  return () => `${instance}-${(runs += 1)}`;
}
