import { instanceName } from '../connections/open-connections.ts';
import { Elector } from '../election/elector.ts';
import { KubeLeaseStore } from '../election/kube-lease-store.ts';
import { IDENTITY_PREFIX, type LeaseTimes } from '../election/lease.ts';
import { followLease, type LeaseFollower } from '../election/lease-follower.ts';
import type { LeadStatus } from '../election/own-leader.ts';
import { systemClock } from '../runtime/clock.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { DriverDeps } from './driver-deps.ts';
import type { LeaderLease, Leadership } from './leadership.ts';

/** Begins to compete for the Lease; with --leader-election=false, to lead.
 * @returns says why nobody leads; undefined if somebody does, as far as this process knows */
export function openElection(
  base: DriverDeps,
  times: LeaseTimes,
  leadership: Leadership,
): () => string | undefined {
  if (base.context.flags.leaderElection) return competeForLease(base, times, leadership);
  const follower = followQuietly(base);
  const lease =
    base.ownLeader === undefined ? openNamedLease(base, leadership, follower) : leadAlone(follower);
  base.ownLeader?.follow(lease);
  tickEverySecond(base.context, leadership, lease);
  leadership.begin(lease);
  return () => undefined;
}

/** --leader-election=false: only one ingest of the driver may run. */
function leadAlone(
  follower: LeaseFollower,
  write = (_transitions: number): Promise<void> => Promise.resolve(),
): LeaderLease {
  let transitions = 0;
  return {
    isLeader: true,
    leadsForMs: Infinity,
    holder: undefined,
    get seen() {
      return follower.seen;
    },
    get transitions() {
      return transitions;
    },
    renewNow: (least = 0) => {
      // Redis may have a higher term, of an ingest that competed for the Lease.
      transitions = Math.max(transitions, least);
      return write(transitions);
    },
  };
}

/** Writes the Lease even without leader election: from it workers in other processes learn which
 * history of Redis' data counts. */
function openNamedLease(
  base: DriverDeps,
  leadership: Leadership,
  follower: LeaseFollower,
): LeaderLease {
  const { context, journal } = base;
  const store = openStore(base, leadership);
  const lease = `${journal.namespace}/${journal.lease}`;
  const held = {
    holder: `${IDENTITY_PREFIX}${instanceName(context)}`,
    durationMs: 15_000,
    acquiredMs: Date.now(),
    renewedMs: Date.now(),
  };
  const { signal } = new AbortController();
  return leadAlone(follower, async (transitions) => {
    await follower.waitForFirstRead();
    const { otherHolder } = follower.seen;
    if (otherHolder !== undefined)
      throw new Error(`${otherHolder} holds the Lease ${lease}: stop it first`);
    const record = { ...held, transitions };
    for (let tries = 0; tries < 5; tries += 1) {
      const written = await store.write(record, await store.get(signal), signal);
      if (written !== undefined) return;
    }
    throw new Error(`other processes keep writing the Lease ${lease}: stop them`);
  });
}

function openStore({ context, connections, journal }: DriverDeps, leadership: Leadership) {
  return new KubeLeaseStore({
    client: connections.kube,
    namespace: journal.namespace,
    name: journal.lease,
    labels: context.flags.leaderElectionLabels,
    annotations: (record) => leadership.annotations(record),
    log: context.log,
  });
}

function competeForLease(
  base: DriverDeps,
  times: LeaseTimes,
  leadership: Leadership,
): () => string | undefined {
  const { context, journal, queue } = base;
  const { closers, health, log, metrics } = context;
  const elector = new Elector({
    store: openStore(base, leadership),
    leaseName: journal.lease,
    identity: `${IDENTITY_PREFIX}${instanceName(context)}`,
    ...times,
    clock: systemClock,
    log,
    metrics,
    onStartedLeading: (status) => {
      if (status.isAfterOther) base.pause.otherLed();
      leadership.begin(status);
    },
    onStoppedLeading: (reason) => leadership.end(reason),
  });
  base.ownLeader?.follow(elector);
  closers.add('elector', async () => {
    queue.block();
    await elector.close();
  });
  health.live('leader-election', () =>
    elector.isHealthy() ? undefined : 'failed to renew leadership in time',
  );
  health.ready('leader-election', () => elector.trouble);
  tickEverySecond(context, leadership, elector);
  return () => (elector.isLeader || elector.holder !== undefined ? undefined : elector.trouble);
}

const TICK_MS = 1_000;

function tickEverySecond(
  { closers, log }: DriverDeps['context'],
  leadership: Leadership,
  lease: Pick<LeadStatus, 'seen'>,
): void {
  const loop = new PollLoop({
    // Async, so that what it throws reaches onError.
    step: async () => leadership.tick(lease.seen),
    onError: (error) => log.error({ err: error }, 'a periodic task failed'),
    periodMs: TICK_MS,
  });
  closers.add('leadership', () => loop.stop());
}

/** Follows the Lease without competing for it, to notice a drain or another provisioner. Logs only
 * errors, because an account without the right to read the Lease works too. */
function followQuietly({ context, connections, journal }: DriverDeps): LeaseFollower {
  const { closers } = context;
  const log = context.log.child({}, { level: 'error' });
  const { namespace, lease: name } = journal;
  return followLease({ client: connections.kube, closers, log }, { namespace, name });
}
