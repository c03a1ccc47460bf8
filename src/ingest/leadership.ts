import { instanceName, type LedDrivers } from '../connections/open-connections.ts';
import { Elector } from '../election/elector.ts';
import { KubeLeaseStore } from '../election/kube-lease-store.ts';
import { IDENTITY_PREFIX, type LeaseTimes, otherHolder } from '../election/lease.ts';
import type { LeaseStatus, SoftState } from '../election/soft-state.ts';
import { redisDataEpochStore } from '../records/data-epoch.ts';
import { quarantineMs } from '../records/flags.ts';
import { OtherProvisioner } from '../records/provisioning-pause.ts';
import { everyPeriod, systemClock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import {
  type DataEpoch,
  DataEpochCheck,
  leaseDataEpochStore,
  sequenceAnnotations,
  softDataEpochStore,
} from '../records/data-epoch-check.ts';
import type { DriverDeps } from './driver-deps.ts';
import { type GatewayFailover, openFailover } from './gateway-failover.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { ObjectSource } from './objects/object-source.ts';
import type { ProvisioningPause } from './provisioning-pause.ts';
import type { Resync } from './resync.ts';
import { shouldSweep, SnapshotSweep } from './snapshot-sweep.ts';

export interface LeadershipOptions {
  readonly driver: string;
  readonly queue: LeaderOnlyQueue;
  readonly resync: Resync;
  readonly dataEpoch: Pick<DataEpochCheck, 'beginLeading' | 'check' | 'known'>;
  readonly otherProvisioner: Pick<OtherProvisioner, 'observe'>;
  readonly pause: Pick<ProvisioningPause, 'forget'>;
  readonly failover: Pick<GatewayFailover, 'checkNow'>;
  /** Undefined where sweeps are switched off, or the driver makes no snapshots. */
  readonly sweep: Pick<SnapshotSweep, 'begin'> | undefined;
  readonly softState: Pick<SoftState, 'check'> | undefined;
  readonly isRedisOurs: () => boolean;
  readonly leads: LedDrivers;
  readonly log: Logger;
}

/** What this ingest does while it leads, from `begin` to `end`: it enqueues keys, checks the
 * epoch of Redis' data, names the active gateway and sweeps snapshots. */
export class Leadership {
  readonly #options: LeadershipOptions;
  #isChecking = false;
  /** Why a resync is due. It waits until it is known whether Redis lost data, which decides whether
   * it is spread. */
  #dueResync: string | undefined;

  constructor(options: LeadershipOptions) {
    this.#options = options;
  }

  /** What Redis is known to hold at least; undefined: not known yet. */
  get dataEpoch(): DataEpoch | undefined {
    return this.#options.dataEpoch.known;
  }

  /** This process leads from now on, as long as the Lease says so. */
  begin(lease: LeaseStatus): void {
    if (this.#options.softState?.check() === false) return;
    const { driver, queue, failover, otherProvisioner, dataEpoch, sweep, isRedisOurs, log } =
      this.#options;
    dataEpoch.beginLeading(lease.transitions);
    queue.allow(() => isRedisOurs() && lease.isLeader);
    this.#options.leads.add(driver);
    log.info({ driver }, 'leading: this ingest enqueues claims and volumes');
    otherProvisioner.observe(undefined);
    // The check before the resync also tells the workers that no other provisioner leads, and they
    // put off what they take while one does.
    this.#requestResync('leading');
    failover.checkNow();
    sweep?.begin();
  }

  /** Another ingest leads, or none. */
  end(reason: string): void {
    const { driver, leads, queue, pause, resync, log } = this.#options;
    queue.block();
    leads.delete(driver);
    pause.forget();
    resync.stop();
    log.warn({ driver, reason }, 'not leading any more: this ingest enqueues nothing');
  }

  /** Redis belongs to our cluster again: passes on the keys that were kept meanwhile. */
  resume(): void {
    this.#options.queue.passKept();
    this.#requestResync('this Redis is ours again');
  }

  /** Redis can be reached again: it may have been restarted with less than it had. */
  reconnected(): void {
    this.#requestResync('Redis can be reached again');
  }

  /** Notices were lost, so that changes may have been missed. */
  noticesLost(): void {
    this.#requestResync('notices were lost');
  }

  /** To be called every second: tells the workers about another provisioner, and checks the
   * data epoch if this process leads. */
  tick(lease: LeaseStatus): void {
    const { otherProvisioner, softState, isRedisOurs } = this.#options;
    if (softState?.check() === false) return;
    const holder = lease.isLeader ? undefined : lease.holder;
    if (isRedisOurs()) otherProvisioner.observe(otherHolder(holder));
    void this.#checkDataEpoch();
  }

  #requestResync(reason: string): void {
    this.#dueResync = reason;
    void this.#checkDataEpoch();
  }

  #takeDueResync(): string | undefined {
    const reason = this.#dueResync;
    this.#dueResync = undefined;
    return reason;
  }

  /** Checks whether Redis lost data, and does the resync that follows from it or is due. */
  async #checkDataEpoch(): Promise<void> {
    const { failover, queue, dataEpoch, resync, softState, log } = this.#options;
    if (!queue.isAllowing || this.#isChecking) return;
    this.#isChecking = true;
    try {
      const hasLostData = await dataEpoch.check();
      const reason = this.#takeDueResync();
      if (hasLostData) failover.checkNow();
      if (hasLostData && softState === undefined) void resync.runAfterLoss();
      else if (hasLostData) void resync.run('leading');
      else if (reason !== undefined) void resync.run(reason);
    } catch (error) {
      if (this.#takeDueResync() !== undefined) void resync.runDoubtful();
      // The check reports the Lease, and the connection Redis.
      log.debug({ err: error }, 'could not check the data epoch of Redis; trying again');
    } finally {
      this.#isChecking = false;
    }
  }
}

/** Makes what this ingest does while it leads. */
export function openLeadership(base: DriverDeps, source: ObjectSource, resync: Resync): Leadership {
  const { context, connections, driver, lease, queue, pause, softState } = base;
  const { flags, closers, health, log } = context;
  const { kube, leads, link, marker } = connections;
  const dataEpochs = redisDataEpochStore(link.redis, flags.redisPrefix, driver.name);
  const store =
    softState === undefined
      ? leaseDataEpochStore({ client: kube, ...lease })
      : softDataEpochStore();
  const dataEpoch = new DataEpochCheck({
    dataEpochs,
    store,
    quarantineMs: quarantineMs(flags),
    isSoftState: softState !== undefined,
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
    softState,
    isRedisOurs: () => marker.isOurs,
    leads,
    log,
  });
  closers.add('leading', () => leads.delete(driver.name));
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

/** Begins to compete for the Lease; with --leader-election=false, to lead.
 * @returns why nobody leads, as far as this process knows; undefined if somebody does */
export function openElection(
  base: DriverDeps,
  times: LeaseTimes,
  leadership: Leadership,
): () => string | undefined {
  if (base.context.flags.leaderElection) return competeForLease(base, times, leadership);
  base.softState?.follow(ALWAYS_LEADING);
  tickEverySecond(base, leadership, ALWAYS_LEADING);
  leadership.begin(ALWAYS_LEADING);
  return () => undefined;
}

/** --leader-election=false: only one ingest of the driver may run. */
const ALWAYS_LEADING: LeaseStatus = { isLeader: true, holder: undefined, transitions: 0 };

function competeForLease(
  base: DriverDeps,
  times: LeaseTimes,
  leadership: Leadership,
): () => string | undefined {
  const { context, connections, lease, queue } = base;
  const { flags, closers, health, log, metrics } = context;
  const labels = flags.leaderElectionLabels;
  const annotations = (isReleased: boolean) => {
    const { dataEpoch } = leadership;
    const isKept = dataEpoch !== undefined && base.softState === undefined;
    return isKept ? sequenceAnnotations(dataEpoch, isReleased) : {};
  };
  const elector = new Elector({
    store: new KubeLeaseStore({ client: connections.kube, ...lease, labels, annotations, log }),
    leaseName: lease.name,
    identity: `${IDENTITY_PREFIX}${instanceName(context)}`,
    ...times,
    clock: systemClock,
    log,
    metrics,
    onStartedLeading: (status) => leadership.begin(status),
    onStoppedLeading: (reason) => leadership.end(reason),
  });
  base.softState?.follow(elector);
  closers.add('elector', async () => {
    queue.block();
    await elector.close();
  });
  health.live('leader-election', () =>
    elector.isHealthy() ? undefined : 'failed to renew leadership in time',
  );
  health.ready('leader-election', () => elector.trouble);
  tickEverySecond(base, leadership, elector);
  return () => (elector.isLeader || elector.holder !== undefined ? undefined : elector.trouble);
}

const TICK_MS = 1_000;

/** Also when Redis can be reached again: after a failover it may lack what was written last. */
function tickEverySecond(
  { context, connections }: DriverDeps,
  leadership: Leadership,
  lease: LeaseStatus,
): void {
  const tick = (): void => leadership.tick(lease);
  const endTicks = everyPeriod(TICK_MS, tick);
  context.closers.add('listener', connections.link.onReady(tick));
  context.closers.add('leadership', endTicks);
}
