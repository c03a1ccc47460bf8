import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { resolve } from 'node:path';

import { Redis } from 'ioredis';

import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';

/** A Redis of our own, as a child process on loopback. */
export interface RedisServer {
  /** With the password, which only this server knows: whoever accepts it is our child. */
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Resolves when the process ended, wanted or not, with how it ended. */
  readonly exited: Promise<string>;
  /** Ends it; SIGKILL after `graceMs`. Data that was written stays in the folder. */
  close(graceMs?: number): Promise<void>;
}

export interface RedisServerOptions {
  /** Created if absent; holds the append-only file. */
  readonly dataDir: string;
  readonly log: Logger;
  /** To start again where one ran before; otherwise a free port. */
  readonly port?: number;
  /** The password to start again with; otherwise random. */
  readonly password?: string;
  /** More lines of redis.conf; the last of two wins. */
  readonly settings?: readonly string[];
  /** Names or paths to try in turn. */
  readonly programs?: readonly string[];
}

const PROGRAMS = ['redis-server', 'valkey-server'];
const START_MS = 10_000;
const ANSWER_MS = 1000;

/** Starts Redis with what queues need: append-only file, no eviction, delays precise to 10 ms, jobs
 * stored compactly. Resolves when it answers.
 * @throws UsageError if there is no server on PATH; Error with the server's own words if it does
 *   not start */
export async function startRedisServer(options: RedisServerOptions): Promise<RedisServer> {
  const dataDir = resolve(options.dataDir);
  await mkdir(dataDir, { recursive: true });
  const password = options.password ?? randomBytes(18).toString('base64url');
  for (const program of options.programs ?? PROGRAMS) {
    const server = await startOnSomePort({ program, dataDir, password, options });
    if (server !== undefined) return server;
  }
  throw new UsageError(
    'no redis-server or valkey-server on PATH: install one (Debian: apt-get install redis-server), or name a running Redis with --redis-url or REDIS_URL',
  );
}

interface Start {
  readonly program: string;
  readonly dataDir: string;
  readonly password: string;
  readonly options: RedisServerOptions;
}

/** @returns undefined if there is no such program */
async function startOnSomePort(plan: Start): Promise<RedisServer | undefined> {
  const { options } = plan;
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    try {
      return await start(plan, port);
    } catch (error) {
      if (error instanceof ServerError && error.missing) return undefined;
      // Somebody else took the port between the look and the start.
      if (options.port !== undefined || attempt === 5) throw error;
      options.log.debug({ err: error, port }, 'Redis did not start on this port; trying another');
    }
  }
}

class ServerError extends Error {
  override readonly name = 'ServerError';
  /** There is no such program. */
  readonly missing: boolean;

  constructor(missing: boolean, message: string, options: ErrorOptions) {
    super(message, options);
    this.missing = missing;
  }
}

async function start(
  { program, dataDir, password, options }: Start,
  port: number,
): Promise<RedisServer> {
  // Settings by stdin: arguments can be read by everybody on the machine.
  const child = spawn(program, ['-'], {
    stdio: ['pipe', 'pipe', 'pipe'],
    cwd: dataDir,
    detached: true,
  });
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      said.push(...text.split('\n').filter((line) => line.trim() !== ''));
      said.splice(0, said.length - 5);
    });
  }
  let ended: string | undefined;
  let missing = false;
  const exited = new Promise<string>((resolveExit) => {
    const end = (how: string): void => {
      ended ??= how;
      resolveExit(ended);
    };
    child.once('error', (error: NodeJS.ErrnoException) => {
      missing = error.code === 'ENOENT';
      end(error.message);
    });
    child.once('close', (code, signal) => end(`ended with ${signal ?? `code ${code}`}`));
  });
  const watchdog = startWatchdog(child);
  child.stdin.on('error', () => undefined);
  child.stdin.end(configuration(dataDir, port, password, options.settings ?? []));
  const url = `redis://:${password}@127.0.0.1:${port}`;
  const close = (graceMs = 5000): Promise<void> => stop(child, exited, graceMs);
  // Before the process id can belong to another process.
  void exited.then(() => watchdog?.kill('SIGKILL'));
  try {
    await answers(url, child, () => ended);
  } catch (cause) {
    await close(0);
    throw new ServerError(
      missing,
      `${program} did not start on port ${port}: ${said.join(' | ') || (ended ?? 'no answer')}`,
      { cause },
    );
  }
  options.log.debug({ port, pid: child.pid, dataDir }, 'Redis started');
  return { url, port, pid: child.pid ?? 0, exited, close };
}

/** Ends Redis when this process is killed and can't: the shell waits at a pipe that the kernel
 * closes with us. */
function startWatchdog(child: ChildProcess): ChildProcess | undefined {
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

function configuration(
  dataDir: string,
  port: number,
  password: string,
  more: readonly string[],
): string {
  const lines = [
    'bind 127.0.0.1',
    `port ${port}`,
    `requirepass ${password}`,
    `dir ${JSON.stringify(dataDir)}`,
    'daemonize no',
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    'maxmemory-policy noeviction',
    // Blocked readers are woken by a timer of this frequency: 10 ms instead of 100.
    'hz 100',
    // A job's options are longer than 64 bytes; compact hashes take 40 % less memory.
    'hash-max-listpack-value 1024',
    ...more,
  ];
  return `${lines.join('\n')}\n`;
}

/** Waits until the child answers, and nobody else in its place. */
async function answers(
  url: string,
  child: ChildProcess,
  ended: () => string | undefined,
): Promise<void> {
  const untilMs = Date.now() + START_MS;
  for (;;) {
    const pid = await processIdOf(url).catch((error: unknown) => {
      if (Date.now() > untilMs) throw error;
      return undefined;
    });
    const how = ended();
    if (how !== undefined) throw new Error(how);
    if (pid === String(child.pid)) return;
    if (pid !== undefined) throw new Error(`another server answers, with pid ${pid}`);
    await new Promise((next) => setTimeout(next, 10));
  }
}

/** Process id of the server that accepts this URL's password. */
async function processIdOf(url: string): Promise<string | undefined> {
  const redis = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    disconnectTimeout: 200,
  });
  let timer: NodeJS.Timeout | undefined;
  try {
    // What is no Redis may leave connect() without an end, so the time is kept here; and a refusal
    // is only told as an event.
    const refused = new Promise<never>((_, fail) => {
      redis.on('error', fail);
      timer = setTimeout(() => fail(new Error('no answer')), ANSWER_MS);
    });
    const info = redis.connect().then(() => redis.info('server'));
    return /^process_id:(\d+)/m.exec(await Promise.race([info, refused]))?.[1];
  } finally {
    clearTimeout(timer);
    redis.disconnect();
  }
}

async function stop(child: ChildProcess, exited: Promise<string>, graceMs: number): Promise<void> {
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), graceMs);
  await exited;
  clearTimeout(killer);
}

function freePort(): Promise<number> {
  return new Promise((done, fail) => {
    const probe = createServer();
    probe.once('error', fail);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() =>
        typeof address === 'object' && address !== null
          ? done(address.port)
          : fail(new Error('no free port')),
      );
    });
  });
}
