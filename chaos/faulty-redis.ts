import { Redis } from 'ioredis';
import { redisOptions } from '#src/redis/client.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { leaderOf, type Replicas } from './leader.ts';

/** A Redis, with the faults that it can have in every form of sutler. */
export interface FaultyRedis {
  /** Sends SIGKILL, and has it start again without data.
   * @returns when it was killed, in Unix ms */
  kill(downMs: number): Promise<number>;
  /** Sends SIGSTOP, and SIGCONT after a while. */
  freeze(forMs: number, signal: AbortSignal): Promise<void>;
  flush(): Promise<void>;
  /** Opens a connection for one piece of work. */
  use<T>(work: (redis: Redis) => Promise<T>): Promise<T>;
}

/** Opens a connection for one piece of work. */
export async function withConnection<T>(
  url: string,
  work: (redis: Redis) => Promise<T>,
): Promise<T> {
  const redis = new Redis(redisOptions(url, 'plain'));
  // Commands reject too.
  redis.on('error', () => undefined);
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

/** The Redis that a drop-in has for itself: that of the replica that leads. sutler starts it again
 * when it ends. */
export class OwnRedis implements FaultyRedis {
  readonly #replicas: Replicas;

  constructor(replicas: Replicas) {
    this.#replicas = replicas;
  }

  async kill(): Promise<number> {
    const pid = await this.#pid();
    if (pid !== undefined) tryKill(pid, 'SIGKILL');
    return systemClock.nowMs();
  }

  async freeze(forMs: number, signal: AbortSignal): Promise<void> {
    const pid = await this.#pid();
    if (pid === undefined) return;
    tryKill(pid, 'SIGSTOP');
    await systemClock.sleep(forMs, signal);
    tryKill(pid, 'SIGCONT');
  }

  async flush(): Promise<void> {
    await this.use((redis) => redis.flushall()).catch(() => undefined);
  }

  async use<T>(work: (redis: Redis) => Promise<T>): Promise<T> {
    const leader = await leaderOf(this.#replicas);
    return withConnection(`unix://${leader?.facts['redis'] ?? ''}`, work);
  }

  /** @returns undefined while there is none, as when its replica was killed */
  async #pid(): Promise<number | undefined> {
    const info = await this.use((redis) => redis.info('server')).catch(() => '');
    const pid = /^process_id:(\d+)/m.exec(info)?.[1];
    return pid === undefined ? undefined : Number(pid);
  }
}

/** Sends a signal to a process that may have ended. */
export function tryKill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}
