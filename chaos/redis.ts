import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';
import { startRedisServer, type TcpRedisServer } from '../test/harness/redis-server.ts';
import { type FaultyRedis, tryKill, withConnection } from './faulty-redis.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

const RESTART_WITHIN_MS = 15_000;
const RESTART_RETRY_MS = 250;
const IN_SYNC_WITHIN_MS = 15_000;
const IN_SYNC_POLL_MS = 20;
/** Time between the death of the master and the first connection to the new one. */
const PROMOTION_MS = 500;
/** Redis reads this file when it starts. */
const COPY = 'dump.rdb';

interface Options {
  /** Each server has a folder of its own in it. */
  readonly dataDir: string;
  readonly log: Logger;
}

/** One of the two servers, with what it needs to be started again. */
interface Member {
  readonly dataDir: string;
  server: TcpRedisServer;
}

/** A Redis without files that can be killed, frozen, emptied, set back and failed over: a master, a
 * replica, and a proxy in front of whichever of them is the master. After a kill the master is
 * restarted on the same port without data. Each fault waits until the previous one has ended. */
export class ChaosRedis implements FaultyRedis {
  readonly #options: Options;
  readonly #password: string;
  readonly #proxy: TcpProxy;
  #master: Member;
  #replica: Member;
  #previous: Promise<unknown> = Promise.resolve();

  private constructor(o: {
    options: Options;
    password: string;
    proxy: TcpProxy;
    master: Member;
    replica: Member;
  }) {
    this.#options = o.options;
    this.#password = o.password;
    this.#proxy = o.proxy;
    this.#master = o.master;
    this.#replica = o.replica;
  }

  static async start(options: Options): Promise<ChaosRedis> {
    const password = randomBytes(18).toString('base64url');
    const proxy = await startTcpProxy('127.0.0.1');
    const [master, replica] = await Promise.all(
      (['a', 'b'] as const).map(async (name) => {
        const dataDir = join(options.dataDir, name);
        return { dataDir, server: await startServer({ ...options, dataDir, password }) };
      }),
    );
    if (master === undefined || replica === undefined) throw new Error('two servers were started');
    proxy.aim(master.server.port);
    const redis = new ChaosRedis({ options, password, proxy, master, replica });
    await redis.#replicate();
    return redis;
  }

  /** The address of the master, which stays the same after a failover. */
  get url(): string {
    return `redis://:${this.#password}@127.0.0.1:${this.#proxy.port}`;
  }

  kill(downMs: number): Promise<number> {
    return this.#oneAtATime(async () => {
      const killedMs = await killServer(this.#master.server);
      await systemClock.sleep(downMs);
      await this.#restart(this.#master);
      return killedMs;
    });
  }

  freeze(forMs: number, signal: AbortSignal): Promise<void> {
    return this.#oneAtATime(async () => {
      const { pid } = this.#master.server;
      process.kill(pid, 'SIGSTOP');
      await systemClock.sleep(forMs, signal);
      process.kill(pid, 'SIGCONT');
    });
  }

  flush(): Promise<void> {
    return this.#oneAtATime(() => this.use(async (redis) => void (await redis.flushall())));
  }

  /** Copies the data, and after `ageMs` starts the master again with that copy.
   * @returns when the master was killed, in Unix ms */
  restore(ageMs: number): Promise<number> {
    return this.#oneAtATime(async () => {
      await this.#writeCopy();
      await systemClock.sleep(ageMs);
      const killedMs = await killServer(this.#master.server);
      await this.#restart(this.#master, true);
      return killedMs;
    });
  }

  /** Ends the replication while clients go on writing, kills the master after `lossMs`, and
   * promotes the replica: what was written meanwhile is lost. The old master becomes the replica of
   * the new one.
   * @returns when clients can reach the new master, in Unix ms */
  failOver(lossMs: number): Promise<number> {
    return this.#oneAtATime(async () => {
      await this.#waitUntilInSync();
      const [old, promoted] = [this.#master, this.#replica];
      await withConnection(promoted.server.url, (redis) => redis.replicaof('NO', 'ONE'));
      await systemClock.sleep(lossMs);
      await killServer(old.server);
      await systemClock.sleep(PROMOTION_MS);
      this.#proxy.aim(promoted.server.port);
      this.#master = promoted;
      this.#replica = old;
      const overMs = systemClock.nowMs();
      await this.#restart(old);
      await this.#replicate();
      return overMs;
    });
  }

  use<T>(work: (redis: Redis) => Promise<T>): Promise<T> {
    return withConnection(this.#master.server.url, work);
  }

  async close(): Promise<void> {
    await this.#previous;
    await Promise.all([this.#master, this.#replica].map(({ server }) => server.close()));
    await this.#proxy.close();
  }

  /** Kills both without waiting, for the exit of this process. */
  killNow(): void {
    for (const { server } of [this.#master, this.#replica]) tryKill(server.pid, 'SIGKILL');
  }

  #oneAtATime<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#previous.then(work);
    this.#previous = done.catch(() => undefined);
    return done;
  }

  async #writeCopy(): Promise<void> {
    for (const untilMs = systemClock.nowMs() + IN_SYNC_WITHIN_MS; ;) {
      try {
        await this.use((redis) => redis.save());
        return;
      } catch (error) {
        // The replica is getting all data.
        const isBusy = error instanceof Error && /save already in progress/.test(error.message);
        if (!isBusy || systemClock.nowMs() > untilMs) throw error;
        await systemClock.sleep(IN_SYNC_POLL_MS);
      }
    }
  }

  /** Makes the replica replicate, and waits until it has the master's data. */
  async #replicate(): Promise<void> {
    const { port } = this.#master.server;
    await withConnection(this.#replica.server.url, (redis) => redis.replicaof('127.0.0.1', port));
    await this.#waitUntilInSync();
  }

  /** Waits until the replica has all that the master had at the beginning of the wait. */
  async #waitUntilInSync(): Promise<void> {
    const untilMs = systemClock.nowMs() + IN_SYNC_WITHIN_MS;
    const [master, replica] = [this.#master.server.url, this.#replica.server.url];
    const written = await withConnection(master, readReplication);
    for (;;) {
      const now = await withConnection(master, readReplication);
      const { isLinked, id, offset } = await withConnection(replica, readReplication);
      // After a restart the replica may not have noticed yet. The master's id changes when the
      // first replica comes.
      if (isLinked && id === now.id && offset >= written.offset) return;
      if (systemClock.nowMs() > untilMs)
        throw new Error(`the replica of Redis has no link after ${IN_SYNC_WITHIN_MS} ms`);
      await systemClock.sleep(IN_SYNC_POLL_MS);
    }
  }

  /** Restarts on the same port, which a reconnecting client may occupy for a moment. */
  async #restart(member: Member, withCopy = false): Promise<void> {
    const { dataDir } = member;
    const { port } = member.server;
    const { log } = this.#options;
    if (!withCopy) await rm(join(dataDir, COPY), { force: true });
    const untilMs = systemClock.nowMs() + RESTART_WITHIN_MS;
    for (;;) {
      try {
        member.server = await startServer({ dataDir, log, port, password: this.#password });
        return;
      } catch (error) {
        if (systemClock.nowMs() > untilMs) throw error;
        await systemClock.sleep(RESTART_RETRY_MS);
      }
    }
  }
}

function startServer(
  o: Options & { readonly password: string; readonly port?: number },
): Promise<TcpRedisServer> {
  return startRedisServer({
    ...o,
    settings: [
      // Each server is the other's replica at times. A new replica gets the data at once.
      `masterauth ${o.password}`,
      'repl-diskless-sync-delay 0',
      // Else a replica keeps the file by which it got the data, and would start with it.
      'rdb-del-sync-files yes',
    ],
  });
}

/** @returns when it was killed, in Unix ms */
async function killServer({ pid, exited }: TcpRedisServer): Promise<number> {
  process.kill(pid, 'SIGKILL');
  const killedMs = systemClock.nowMs();
  await exited;
  return killedMs;
}

interface Replication {
  /** Whether this replica is connected to its master and has received its data. */
  readonly isLinked: boolean;
  /** Of the life of the data. */
  readonly id: string;
  readonly offset: number;
}

async function readReplication(redis: Redis): Promise<Replication> {
  const info = await redis.info('replication');
  return {
    isLinked: /^master_link_status:up/m.test(info),
    id: /^master_replid:(\w+)/m.exec(info)?.[1] ?? '',
    offset: Number(/^(?:slave_repl_offset|master_repl_offset):(\d+)/m.exec(info)?.[1] ?? 0),
  };
}
