import { redisIncarnationStore } from '../records/incarnation.ts';
import { quarantineMs } from '../records/flags.ts';
import type { Base } from './base.ts';
import { ForeignLeader } from '../records/foreign-leader.ts';
import { IncarnationCheck } from './incarnation-check.ts';
import { Leadership } from './leadership.ts';
import { leaseIncarnationStore } from './lease-incarnation-store.ts';
import type { DriverObjects } from './objects/object-source.ts';
import { openFailover } from './open-failover.ts';
import type { Resync } from './resync.ts';
import { shouldSweep, SnapshotSweep } from './snapshot-sweep.ts';

/** Makes what this ingest does while it leads. */
export function openLeadership(base: Base, objects: DriverObjects, resync: Resync): Leadership {
  const { context, connections, driver, lease, gate, newWork } = base;
  const { flags, closers, health, log } = context;
  const { kube, link, marker } = connections;
  const incarnations = redisIncarnationStore(link.redis, flags.redisPrefix, driver.name);
  const store = leaseIncarnationStore({ client: kube, ...lease });
  const incarnation = new IncarnationCheck({
    incarnations,
    store,
    quarantineMs: quarantineMs(flags),
    onFacts: (facts) => newWork.learn(facts),
    log,
  });
  health.ready('incarnation', () => (gate.isAllowing ? incarnation.trouble : undefined));
  const leadership = new Leadership({
    driver: driver.name,
    gate,
    resync,
    failover: openFailover(base),
    sweep: openSweep(base, objects),
    incarnation,
    newWork,
    foreignLeader: new ForeignLeader(incarnations, log),
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

function openSweep(base: Base, objects: DriverObjects): SnapshotSweep | undefined {
  const { context, connections, driver, gate } = base;
  const intervalMs = context.flags.snapshotOrphanSweepIntervalMs;
  if (!shouldSweep(intervalMs, driver.controllerCapabilities)) return undefined;
  const sweep = new SnapshotSweep({
    client: connections.kube,
    restored: () => objects.restoredSnapshots(),
    ensureQueued: (key) => gate.ensureQueued(key),
    isLeading: () => gate.isAllowing,
    intervalMs,
    log: context.log,
  });
  context.closers.add('snapshot sweep', () => sweep.stop());
  return sweep;
}
