import { leaseName } from '#src/election/lease.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Redis } from 'ioredis';
import type { Passage } from './api-proxy.ts';
import type { Fault } from './schedule.ts';
import { NAMESPACE, type Stand } from './stand.ts';
import type { Supervised } from './supervised.ts';

/** A fault that happened. */
export interface InjectedFault {
  readonly fault: Fault;
  /** Process that it happened to. */
  readonly victim: string;
  /** Unix ms. A kill is over at once: what comes after it is recovery. */
  readonly overMs: number;
}

/** Does it, and resolves when it is undone again. */
export async function inject(
  stand: Stand,
  fault: Fault,
  signal: AbortSignal,
): Promise<InjectedFault> {
  const { kind, target, forMs } = fault;
  const beganMs = systemClock.nowMs();
  const killed = async (child: Supervised | undefined): Promise<InjectedFault> => {
    const victim = `${child?.name} pid ${child?.pid}`;
    await child?.kill(forMs);
    return { fault, victim, overMs: beganMs };
  };
  const frozen = async (child: Supervised | undefined): Promise<InjectedFault> => {
    const victim = `${child?.name} pid ${child?.pid}`;
    await child?.freeze(forMs, signal);
    return { fault, victim, overMs: systemClock.nowMs() };
  };
  const hampered = async (passage: Passage): Promise<InjectedFault> => {
    stand.proxy.set(passage);
    await systemClock.sleep(forMs, signal);
    stand.proxy.set('open');
    return { fault, victim: 'API server', overMs: systemClock.nowMs() };
  };
  switch (kind) {
    case 'kill-ingest':
      return killed(stand.ingest[target]);
    case 'kill-jobs':
      return killed(stand.jobs[target]);
    case 'kill-gateway':
      return killed(stand.gateway);
    case 'kill-driver':
      return killed(stand.driver);
    case 'freeze-leader':
      return frozen(await leaderOf(stand));
    case 'freeze-jobs':
    case 'freeze-jobs-past-lock':
      return frozen(stand.jobs[target]);
    case 'kill-redis':
      return { fault, victim: 'redis-server', overMs: await stand.redis.kill(forMs) };
    case 'freeze-redis':
      await stand.redis.freeze(forMs, signal);
      return { fault, victim: 'redis-server', overMs: systemClock.nowMs() };
    case 'flush-redis':
      await flush(stand.redis.url);
      return { fault, victim: 'redis-server', overMs: systemClock.nowMs() };
    case 'cut-api':
      return hampered('cut');
    case 'hang-api':
      return hampered('hang');
  }
}

/** The ingest whose pid is in the Lease; the first one while nobody leads. */
async function leaderOf({ client, driverName, ingest }: Stand): Promise<Supervised | undefined> {
  const lease = await client.get<Lease>(leases, {
    namespace: NAMESPACE,
    name: leaseName(driverName),
  });
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
