import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import { OWN_REDIS_SOCKET } from '../runtime/own-folder.ts';
import { isInUse } from '../runtime/socket-file.ts';

/** A Redis (or Valkey) that is a child of this process, on a unix socket. */
export interface RedisServer {
  readonly url: string;
  readonly pid: number;
  /** Resolves when the process has ended, for whatever reason, with how it ended. */
  readonly exited: Promise<string>;
  /** Ends the process, with SIGKILL after `graceMs`. Written data stays in the folder. */
  close(graceMs?: number): Promise<void>;
}

interface RedisServerOptions {
  /** Must exist, and only this user may enter it: the socket has no password. */
  readonly folder: string;
  readonly log: Logger;
  /** More lines of redis.conf. Of two lines for one setting, the last one counts. */
  readonly settings?: readonly string[];
  /** Names or paths of server programs to try in turn. */
  readonly programs?: readonly string[];
}

const PROGRAMS = ['redis-server', 'valkey-server'];
const START_MS = 10_000;
const START_POLL_MS = 10;
const RESTART_MS = 500;
/** Lines of the server's output that an error shows. */
const SHOWN_LINES = 5;

/** Starts a Redis. Whenever it ends, starts it again, empty.
 * @throws as startRedisServer */
export async function keepRedisServer(
  options: RedisServerOptions,
): Promise<Pick<RedisServer, 'url' | 'close'>> {
  const { log } = options;
  const closing = new AbortController();
  let server = await startRedisServer(options);

  const restartUntilClosed = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      const how = await server.exited;
      if (closing.signal.aborted) return;
      log.warn({ how }, 'Redis ended; starting it again, empty');
      await systemClock.sleep(RESTART_MS, closing.signal);
      try {
        if (!closing.signal.aborted) server = await startRedisServer(options);
      } catch (error) {
        log.error({ err: error }, 'Redis does not start; trying again');
      }
    }
  };
  const restarting = restartUntilClosed();
  return {
    url: server.url,
    async close() {
      closing.abort();
      await server.close();
      await restarting;
      // A server that was just being started.
      await server.close();
    },
  };
}

/** Starts a Redis with the settings that queues need: no eviction, jobs stored compactly. It writes
 * nothing to disk. Resolves when Redis answers.
 * @throws UsageError if no server is installed; Error with the server's output if it fails */
export async function startRedisServer(options: RedisServerOptions): Promise<RedisServer> {
  for (const program of options.programs ?? PROGRAMS) {
    // Settings go through stdin: every user of the machine can read a process's arguments.
    const child = spawn(program, ['-'], { cwd: options.folder, detached: true });
    child.stdin.on('error', () => undefined);
    try {
      await once(child, 'spawn');
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') continue;
      throw error;
    }
    return serve(program, child, options);
  }
  throw new UsageError(
    'no redis-server or valkey-server on PATH: install one ' +
      '(Debian: apt-get install redis-server), ' +
      'or name a running Redis with --redis-url or REDIS_URL',
  );
}

type Child = ReturnType<typeof spawn> & { readonly stdin: NodeJS.WritableStream };

async function serve(
  program: string,
  child: Child,
  { folder, log, settings = [] }: RedisServerOptions,
): Promise<RedisServer> {
  const lastLines: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => {
      lastLines.push(...text.split('\n').filter((line) => line.trim() !== ''));
      lastLines.splice(0, lastLines.length - SHOWN_LINES);
    });
  let ended: string | undefined;
  const exited = once(child, 'close').then(
    ([code, signal]) => (ended = `ended with ${signal ?? `code ${code}`}`),
    (error: unknown) => (ended = messageOf(error)),
  );
  const watchdog = startWatchdog(child);
  // At once: the watchdog kills by process id, which the system may give to another process.
  void exited.then(() => watchdog?.kill('SIGKILL'));
  const close = async (graceMs = 5_000): Promise<void> => {
    child.kill('SIGTERM');
    const killer = setTimeout(() => child.kill('SIGKILL'), graceMs);
    await exited;
    clearTimeout(killer);
  };
  const socket = join(folder, OWN_REDIS_SOCKET);
  child.stdin.end(configuration(folder, socket, settings));
  for (const untilMs = Date.now() + START_MS; !(await isInUse(socket));) {
    await systemClock.sleep(START_POLL_MS);
    if (ended === undefined && Date.now() < untilMs) continue;
    await close(0);
    throw new Error(`${program} did not start: ${lastLines.join(' | ') || ended}`);
  }
  log.debug({ socket, pid: child.pid }, 'Redis started');
  return { url: `unix://${socket}`, pid: child.pid ?? 0, exited, close };
}

/** Starts a shell that ends Redis if this process is killed: the shell reads from a pipe, which the
 * kernel closes when this process ends. */
function startWatchdog(child: Child): ChildProcess | undefined {
  if (child.pid === undefined) return undefined;
  const watchdog = spawn('sh', ['-c', `cat >/dev/null; kill -TERM ${child.pid} 2>/dev/null`], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  watchdog.on('error', () => undefined);
  watchdog.stdin.on('error', () => undefined);
  watchdog.unref();
  return watchdog;
}

function configuration(folder: string, socket: string, settings: readonly string[]): string {
  const lines = [
    'port 0',
    `unixsocket ${JSON.stringify(socket)}`,
    `dir ${JSON.stringify(folder)}`,
    'daemonize no',
    'save ""',
    'maxmemory-policy noeviction',
    // Keeps jobs compact, with 40 % less memory: their options exceed the default of 64 bytes.
    'hash-max-listpack-value 1024',
    ...settings,
  ];
  return `${lines.join('\n')}\n`;
}
