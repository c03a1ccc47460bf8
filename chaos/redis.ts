import { startRedisServer, type RedisServer } from '#src/redis/server.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';

const RESTART_WITHIN_MS = 15_000;
const RESTART_RETRY_MS = 250;

/** A Redis that can be killed and frozen. After a kill it is restarted on the same port with its
 * data. Each fault waits until the previous one has ended. */
export class ChaosRedis {
  readonly #dataDir: string;
  readonly #log: Logger;
  #server: RedisServer;
  #previous: Promise<unknown> = Promise.resolve();

  private constructor(server: RedisServer, o: { dataDir: string; log: Logger }) {
    this.#server = server;
    this.#dataDir = o.dataDir;
    this.#log = o.log;
  }

  static async start(o: { dataDir: string; log: Logger }): Promise<ChaosRedis> {
    return new ChaosRedis(await startRedisServer(o), o);
  }

  get url(): string {
    return this.#server.url;
  }

  /** Sends SIGKILL and restarts Redis.
   * @returns when it was killed, in Unix ms */
  kill(downMs: number): Promise<number> {
    return this.#oneAtATime(async () => {
      const { pid, exited } = this.#server;
      const killedMs = systemClock.nowMs();
      process.kill(pid, 'SIGKILL');
      await exited;
      await systemClock.sleep(downMs);
      this.#server = await this.#restart();
      return killedMs;
    });
  }

  /** Sends SIGSTOP, and SIGCONT after a while. */
  freeze(forMs: number, signal: AbortSignal): Promise<void> {
    return this.#oneAtATime(async () => {
      const { pid } = this.#server;
      process.kill(pid, 'SIGSTOP');
      await systemClock.sleep(forMs, signal);
      process.kill(pid, 'SIGCONT');
    });
  }

  async close(): Promise<void> {
    await this.#previous;
    await this.#server.close();
  }

  /** Kills it without waiting, for the exit of this process. */
  killNow(): void {
    try {
      process.kill(this.#server.pid, 'SIGKILL');
    } catch {
      // It has exited.
    }
  }

  #oneAtATime<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#previous.then(work);
    this.#previous = done.catch(() => undefined);
    return done;
  }

  /** Restarts on the same port, which a reconnecting client may occupy for a moment. */
  async #restart(): Promise<RedisServer> {
    const { port, url } = this.#server;
    const untilMs = systemClock.nowMs() + RESTART_WITHIN_MS;
    for (;;) {
      try {
        return await startRedisServer({
          dataDir: this.#dataDir,
          log: this.#log,
          port,
          password: new URL(url).password,
        });
      } catch (error) {
        if (systemClock.nowMs() > untilMs) throw error;
        await systemClock.sleep(RESTART_RETRY_MS);
      }
    }
  }
}
