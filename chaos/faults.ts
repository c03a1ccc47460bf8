import { systemClock } from '#src/runtime/clock.ts';
import { leaderOf } from './leader.ts';
import type { Fault, FaultKind } from './schedule.ts';
import type { Supervised } from './supervised.ts';
import type { Passage } from './tcp-proxy.ts';
import type { Testbed } from './testbed.ts';

/** A fault that was injected. */
export interface InjectedFault {
  readonly fault: Fault;
  /** The process that it affected. */
  readonly victim: string;
  /** When the fault ended, in Unix ms. A kill ends at once: the time after it is recovery. */
  readonly overMs: number;
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
  'kill-container': (o) => kill(o.testbed.ingest[o.target], o.forMs),
  'kill-driver': (o) => kill(o.testbed.driver, o.forMs),
  'freeze-leader': async (o) => freeze(await leaderOf(o.testbed), o.forMs, o.signal),
  'freeze-jobs': (o) => freeze(o.testbed.jobs[o.target], o.forMs, o.signal),
  'freeze-jobs-past-lock': (o) => freeze(o.testbed.jobs[o.target], o.forMs, o.signal),
  'kill-redis': async (o) => ({ victim: REDIS, overMs: await o.testbed.redis.kill(o.forMs) }),
  'flush-redis': (o) => until(o.testbed.redis.flush(), REDIS),
  'restore-redis': async (o) => ({ victim: REDIS, overMs: await serverOf(o).restore(o.forMs) }),
  'failover-redis': async (o) => ({ victim: REDIS, overMs: await serverOf(o).failOver(o.forMs) }),
  'freeze-redis': (o) => until(o.testbed.redis.freeze(o.forMs, o.signal), REDIS),
  'cut-api': (o) => until(obstructApi(o, 'cut'), 'API server'),
  'hang-api': (o) => until(obstructApi(o, 'hang'), 'API server'),
  'freeze-api': (o) => until(o.testbed.freezeApiServer(o.forMs, o.signal), 'API server'),
};

const REDIS = 'redis-server';

function serverOf({ testbed: { server } }: Parameters<Action>[0]) {
  if (server === undefined) throw new Error('each drop-in has a Redis of its own');
  return server;
}

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
