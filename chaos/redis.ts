import { startRedisServer } from '#src/redis/server.ts';
import type { RedisServer } from '#src/redis/server.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';

const RESTART_WITHIN_MS = 15_000;
const RESTART_RETRY_MS = 250;

/** A Redis that is killed, frozen, and started again where it was, with what it had written. One
 * thing at a time: a fault waits until the one before is undone. */
export class ChaosRedis {
  readonly #dataDir: string;
  readonly #log: Logger;
  #server: RedisServer;
  #before: Promise<unknown> = Promise.resolve();

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

  /** SIGKILL; resolves with the time of it when Redis answers again. */
  kill(downMs: number): Promise<number> {
    return this.#alone(async () => {
      const { pid, exited } = this.#server;
      const killedMs = systemClock.nowMs();
      process.kill(pid, 'SIGKILL');
      await exited;
      await systemClock.sleep(downMs);
      this.#server = await this.#restart();
      return killedMs;
    });
  }

  /** SIGSTOP, and SIGCONT after a while. */
  freeze(forMs: number, signal: AbortSignal): Promise<void> {
    return this.#alone(async () => {
      const { pid } = this.#server;
      process.kill(pid, 'SIGSTOP');
      await systemClock.sleep(forMs, signal);
      process.kill(pid, 'SIGCONT');
    });
  }

  async close(): Promise<void> {
    await this.#before;
    await this.#server.close();
  }

  /** For the very end of this process, which waits for nothing. */
  killNow(): void {
    try {
      process.kill(this.#server.pid, 'SIGKILL');
    } catch {
      // It is gone.
    }
  }

  #alone<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#before.then(work);
    this.#before = done.catch(() => undefined);
    return done;
  }

  /** On the same port, which a client that knocks all the time may hold for a moment. */
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
