import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';
import { startRedisServer, type TcpRedisServer } from '../test/harness/redis-server.ts';
import { compareData, type DataLoss, readData } from './data-loss.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';

const RESTART_WITHIN_MS = 15_000;
const RESTART_RETRY_MS = 250;
const IN_SYNC_WITHIN_MS = 15_000;
const IN_SYNC_POLL_MS = 20;
/** Time between the death of the master and the first connection to the new one. */
const PROMOTION_MS = 500;

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

/** A Redis that can be killed, frozen and failed over: a master, a replica, and a proxy in front of
 * whichever of them is the master. After a kill the master is restarted on the same port with its
 * data. Each fault waits until the previous one has ended. */
export class ChaosRedis {
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

  /** Sends SIGKILL to the master and restarts it.
   * @returns when it was killed, in Unix ms */
  kill(downMs: number): Promise<number> {
    return this.#oneAtATime(async () => {
      const killedMs = await killServer(this.#master.server);
      await systemClock.sleep(downMs);
      await this.#restart(this.#master);
      return killedMs;
    });
  }

  /** Sends SIGSTOP to the master, and SIGCONT after a while. */
  freeze(forMs: number, signal: AbortSignal): Promise<void> {
    return this.#oneAtATime(async () => {
      const { pid } = this.#master.server;
      process.kill(pid, 'SIGSTOP');
      await systemClock.sleep(forMs, signal);
      process.kill(pid, 'SIGCONT');
    });
  }

  /** Ends the replication while clients go on writing, kills the master after `lossMs`, and
   * promotes the replica: what was written meanwhile is lost. The old master becomes the replica of
   * the new one.
   * @returns what was lost: the data that the old master still has in its append-only file,
   *   compared with the data of the replica before a client wrote to it */
  failOver(lossMs: number): Promise<DataLoss> {
    return this.#oneAtATime(async () => {
      await this.#waitUntilInSync();
      const [old, promoted] = [this.#master, this.#replica];
      await withConnection(promoted.server, (redis) => redis.replicaof('NO', 'ONE'));
      const splitMs = systemClock.nowMs();
      const [kept] = await Promise.all([
        withConnection(promoted.server, readData),
        systemClock.sleep(lossMs),
      ]);
      const killedMs = await killServer(old.server);
      await systemClock.sleep(PROMOTION_MS);
      this.#proxy.aim(promoted.server.port);
      this.#master = promoted;
      this.#replica = old;
      const overMs = systemClock.nowMs();
      await this.#restart(old);
      const written = await withConnection(old.server, readData);
      await this.#replicate();
      return { splitMs, killedMs, overMs, ...compareData(written, kept) };
    });
  }

  async close(): Promise<void> {
    await this.#previous;
    await Promise.all([this.#master, this.#replica].map(({ server }) => server.close()));
    await this.#proxy.close();
  }

  /** Kills both without waiting, for the exit of this process. */
  killNow(): void {
    for (const { server } of [this.#master, this.#replica]) {
      try {
        process.kill(server.pid, 'SIGKILL');
      } catch {
        // It has exited.
      }
    }
  }

  #oneAtATime<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#previous.then(work);
    this.#previous = done.catch(() => undefined);
    return done;
  }

  /** Makes the replica replicate, and waits until it has the master's data. */
  async #replicate(): Promise<void> {
    const { port } = this.#master.server;
    await withConnection(this.#replica.server, (redis) => redis.replicaof('127.0.0.1', port));
    await this.#waitUntilInSync();
  }

  /** Waits until the replica has all that the master had at the beginning of the wait. */
  async #waitUntilInSync(): Promise<void> {
    const untilMs = systemClock.nowMs() + IN_SYNC_WITHIN_MS;
    const written = await withConnection(this.#master.server, readReplication);
    await withConnection(this.#replica.server, async (redis) => {
      for (;;) {
        const { isLinked, offset } = await readReplication(redis);
        if (isLinked && offset >= written.offset) return;
        if (systemClock.nowMs() > untilMs)
          throw new Error(`the replica of Redis has no link after ${IN_SYNC_WITHIN_MS} ms`);
        await systemClock.sleep(IN_SYNC_POLL_MS);
      }
    });
  }

  /** Restarts on the same port, which a reconnecting client may occupy for a moment. */
  async #restart(member: Member): Promise<void> {
    const { port } = member.server;
    const { log } = this.#options;
    const untilMs = systemClock.nowMs() + RESTART_WITHIN_MS;
    for (;;) {
      try {
        const { dataDir } = member;
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
      // With everysec, Redis confirms writes that it holds in its own memory for up to 2 s while
      // the disk is busy: a kill would lose them.
      'appendfsync always',
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

async function withConnection<T>(
  server: TcpRedisServer,
  work: (redis: Redis) => Promise<T>,
): Promise<T> {
  const redis = new Redis(server.url);
  // Commands reject too.
  redis.on('error', () => undefined);
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

interface Replication {
  /** Whether this replica is connected to its master and has received its data. */
  readonly isLinked: boolean;
  readonly offset: number;
}

async function readReplication(redis: Redis): Promise<Replication> {
  const info = await redis.info('replication');
  return {
    isLinked: /^master_link_status:up/m.test(info),
    offset: Number(/^(?:slave_repl_offset|master_repl_offset):(\d+)/m.exec(info)?.[1] ?? 0),
  };
}
