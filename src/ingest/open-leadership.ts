import { redisDataEpochStore } from '../records/data-epoch.ts';
import { quarantineMs } from '../records/flags.ts';
import type { DriverDeps } from './driver-deps.ts';
import { OtherProvisioner } from '../records/provisioning-pause.ts';
import { DataEpochCheck } from './data-epoch-check.ts';
import { Leadership } from './leadership.ts';
import { leaseDataEpochStore } from './lease-data-epoch.ts';
import type { ObjectSource } from './objects/object-source.ts';
import { openFailover } from './open-failover.ts';
import type { Resync } from './resync.ts';
import { shouldSweep, SnapshotSweep } from './snapshot-sweep.ts';

/** Makes what this ingest does while it leads. */
export function openLeadership(base: DriverDeps, source: ObjectSource, resync: Resync): Leadership {
  const { context, connections, driver, lease, queue, pause } = base;
  const { flags, closers, health, log } = context;
  const { kube, link, marker } = connections;
  const dataEpochs = redisDataEpochStore(link.redis, flags.redisPrefix, driver.name);
  const store = leaseDataEpochStore({ client: kube, ...lease });
  const dataEpoch = new DataEpochCheck({
    dataEpochs,
    store,
    quarantineMs: quarantineMs(flags),
    onFacts: (facts) => pause.learn(facts),
    log,
  });
  health.ready('data-epoch', () => (queue.isAllowing ? dataEpoch.trouble : undefined));
  const leadership = new Leadership({
    driver: driver.name,
    queue,
    resync,
    failover: openFailover(base),
    sweep: openSweep(base, source),
    dataEpoch,
    pause,
    otherProvisioner: new OtherProvisioner(dataEpochs, log),
    isRedisOurs: () => marker.isOurs,
    log,
  });
  closers.add(
    'listener',
    marker.onChange((isOurs) => isOurs && leadership.resume()),
  );
  closers.add(
    'listener',
    link.onReady(() => leadership.reconnected()),
  );
  return leadership;
}

function openSweep(base: DriverDeps, source: ObjectSource): SnapshotSweep | undefined {
  const { context, connections, driver, queue } = base;
  const intervalMs = context.flags.snapshotOrphanSweepIntervalMs;
  if (!shouldSweep(intervalMs, driver.controllerCapabilities)) return undefined;
  const sweep = new SnapshotSweep({
    client: connections.kube,
    claims: (isWanted) => source.claims(isWanted),
    ensureQueued: (key) => queue.ensureQueued(key),
    isLeading: () => queue.isAllowing,
    intervalMs,
    log: context.log,
  });
  context.closers.add('snapshot sweep', () => sweep.stop());
  return sweep;
}
