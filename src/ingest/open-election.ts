import { instanceName } from '../connections/open-connections.ts';
import { Elector } from '../election/elector.ts';
import { IDENTITY_PREFIX } from '../election/identity.ts';
import { KubeLeaseStore } from '../election/kube-lease-store.ts';
import type { LeaseTimes } from '../election/lease.ts';
import { systemClock } from '../runtime/clock.ts';
import { everyPeriod } from '../runtime/ticks.ts';
import type { DriverDeps } from './driver-deps.ts';
import type { Leadership, LeaseStatus } from './leadership.ts';
import { sequenceAnnotations } from './lease-data-epoch.ts';

/** Begins to compete for the Lease; with --leader-election=false, to lead. */
export function openElection(base: DriverDeps, times: LeaseTimes, leadership: Leadership): void {
  if (base.context.flags.leaderElection) competeForLease(base, times, leadership);
  else leadAlways(base, leadership);
}

/** --leader-election=false: only one ingest of the driver may run. */
const ALWAYS_LEADING: LeaseStatus = { isLeader: true, holder: undefined, transitions: 0 };

function leadAlways(base: DriverDeps, leadership: Leadership): void {
  tickEverySecond(base, leadership, ALWAYS_LEADING);
  leadership.begin(ALWAYS_LEADING);
}

function competeForLease(base: DriverDeps, times: LeaseTimes, leadership: Leadership): void {
  const { context, connections, lease, queue } = base;
  const { flags, closers, health, log, metrics } = context;
  const labels = flags.leaderElectionLabels;
  const annotations = (isReleased: boolean) => {
    const { dataEpoch } = leadership;
    return dataEpoch === undefined ? {} : sequenceAnnotations(dataEpoch, isReleased);
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
  closers.add('elector', async () => {
    queue.block();
    await elector.close();
  });
  health.live('leader-election', () =>
    elector.isHealthy() ? undefined : 'failed to renew leadership in time',
  );
  health.ready('leader-election', () => elector.trouble);
  tickEverySecond(base, leadership, elector);
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
