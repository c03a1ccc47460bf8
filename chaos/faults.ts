import { Redis } from 'ioredis';
import { leaseName } from '#src/election/lease.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { DataLoss } from './data-loss.ts';
import type { Fault, FaultKind } from './schedule.ts';
import type { Supervised } from './supervised.ts';
import type { Passage } from './tcp-proxy.ts';
import { NAMESPACE, type Testbed } from './testbed.ts';

/** A fault that was injected. */
export interface InjectedFault {
  readonly fault: Fault;
  /** The process that it affected. */
  readonly victim: string;
  /** When the fault ended, in Unix ms. A kill ends at once: the time after it is recovery. */
  readonly overMs: number;
  /** What a failover lost. */
  readonly loss?: DataLoss;
}

/** Injects a fault; resolves when it has been undone. */
export async function inject(
  testbed: Testbed,
  fault: Fault,
  signal: AbortSignal,
): Promise<InjectedFault> {
  return { fault, ...(await ACTIONS[fault.kind]({ testbed, signal, ...fault })) };
}

type Injection = Omit<InjectedFault, 'fault'>;
type Action = (o: Fault & { testbed: Testbed; signal: AbortSignal }) => Promise<Injection>;

const ACTIONS: Readonly<Record<FaultKind, Action>> = {
  'kill-ingest': (o) => kill(o.testbed.ingest[o.target], o.forMs),
  'kill-jobs': (o) => kill(o.testbed.jobs[o.target], o.forMs),
  'kill-gateway': (o) => kill(o.testbed.gateway, o.forMs),
  'kill-driver': (o) => kill(o.testbed.driver, o.forMs),
  'freeze-leader': async (o) => freeze(await leaderOf(o.testbed), o.forMs, o.signal),
  'freeze-jobs': (o) => freeze(o.testbed.jobs[o.target], o.forMs, o.signal),
  'freeze-jobs-past-lock': (o) => freeze(o.testbed.jobs[o.target], o.forMs, o.signal),
  'kill-redis': async (o) => ({ victim: REDIS, overMs: await o.testbed.redis.kill(o.forMs) }),
  'freeze-redis': (o) => until(o.testbed.redis.freeze(o.forMs, o.signal), REDIS),
  'failover-redis': async (o) => {
    const loss = await o.testbed.redis.failOver(o.forMs);
    return { victim: REDIS, overMs: loss.overMs, loss };
  },
  'flush-redis': (o) => until(flush(o.testbed.redis.url), REDIS),
  'cut-api': (o) => until(obstructApi(o, 'cut'), 'API server'),
  'hang-api': (o) => until(obstructApi(o, 'hang'), 'API server'),
  'freeze-api': (o) => until(o.testbed.freezeApiServer(o.forMs, o.signal), 'API server'),
  'advance-clock': (o) => shiftClock(o, CLOCK_SHIFT_MS),
  'delay-clock': (o) => shiftClock(o, -CLOCK_SHIFT_MS),
};

const REDIS = 'redis-server';
const CLOCK_SHIFT_MS = 5_000;
/** Less than an ownership period, so that a frozen API server delays no other fault for long. */
const LEASE_READ_MS = 2_000;

async function until(undone: Promise<void>, victim: string): Promise<Injection> {
  await undone;
  return { victim, overMs: systemClock.nowMs() };
}

async function kill(child: Supervised | undefined, downMs: number): Promise<Injection> {
  const injected = { victim: victimOf(child), overMs: systemClock.nowMs() };
  await child?.kill(downMs);
  return injected;
}

async function freeze(
  child: Supervised | undefined,
  forMs: number,
  signal: AbortSignal,
): Promise<Injection> {
  const victim = victimOf(child);
  await child?.freeze(forMs, signal);
  return { victim, overMs: systemClock.nowMs() };
}

function victimOf(child: Supervised | undefined): string {
  return `${child?.name} pid ${child?.pid}`;
}

async function obstructApi(o: Parameters<Action>[0], passage: Passage): Promise<void> {
  o.testbed.proxy.set(passage);
  await systemClock.sleep(o.forMs, o.signal);
  o.testbed.proxy.set('open');
}

/** Sets the clock of a jobs process, and sets it right after a while. */
async function shiftClock(o: Parameters<Action>[0], shiftMs: number): Promise<Injection> {
  const clock = o.testbed.clocks[o.target];
  const victim = victimOf(o.testbed.jobs[o.target]);
  await clock?.shift(shiftMs);
  await systemClock.sleep(o.forMs, o.signal);
  await clock?.shift(0);
  return { victim: `clock of ${victim}`, overMs: systemClock.nowMs() };
}

/** The ingest whose pid is in the Lease; the first ingest while there is no leader, or while the
 * API server does not answer. */
async function leaderOf({ client, driverName, ingest }: Testbed): Promise<Supervised | undefined> {
  const at = { namespace: NAMESPACE, name: leaseName(driverName) };
  const lease = await client
    .get<Lease>(leases, at, { timeoutMs: LEASE_READ_MS })
    .catch(() => undefined);
  const holder = lease?.spec?.holderIdentity ?? '';
  return ingest.find(({ pid }) => pid !== undefined && holder.includes(`-${pid}-`)) ?? ingest[0];
}

async function flush(url: string): Promise<void> {
  const redis = new Redis(url);
  try {
    await redis.flushall();
  } finally {
    redis.disconnect();
  }
}
