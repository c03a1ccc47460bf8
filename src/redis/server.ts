import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';

/** A Redis server that runs as a child process of this one, on loopback. */
export interface RedisServer {
  /** Contains the password, which only this server knows: a server that accepts it is our child. */
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Resolves when the process has ended, on request or not, with how it ended. */
  readonly exited: Promise<string>;
  /** Ends the process; SIGKILL after `graceMs`. Data that was written stays in the folder. */
  close(graceMs?: number): Promise<void>;
}

interface RedisServerOptions {
  /** Created if absent; holds the append-only file. */
  readonly dataDir: string;
  readonly log: Logger;
  /** The port of an earlier start; otherwise a free one. */
  readonly port?: number;
  /** The password of an earlier start; otherwise random. */
  readonly password?: string;
  /** More lines of redis.conf; of two lines for one setting, the last one wins. */
  readonly settings?: readonly string[];
  /** Names or paths of server programs to try in turn. */
  readonly programs?: readonly string[];
}

const PROGRAMS = ['redis-server', 'valkey-server'];
const START_MS = 10_000;
const ANSWER_MS = 1000;

/** Starts Redis with the settings that queues need: append-only file, no eviction, delays precise
 * to 10 ms, jobs stored compactly. Resolves when it answers.
 * @throws UsageError if no server is installed; Error with the server's own output if it does not
 *   start */
export async function startRedisServer(options: RedisServerOptions): Promise<RedisServer> {
  const dataDir = resolve(options.dataDir);
  await mkdir(dataDir, { recursive: true });
  const password = options.password ?? randomBytes(18).toString('base64url');
  for (const program of options.programs ?? PROGRAMS) {
    const server = await startOnSomePort({ program, dataDir, password, options });
    if (server !== undefined) return server;
  }
  throw new UsageError(
    'no redis-server or valkey-server on PATH: install one ' +
      '(Debian: apt-get install redis-server), ' +
      'or name a running Redis with --redis-url or REDIS_URL',
  );
}

interface Start {
  readonly program: string;
  readonly dataDir: string;
  readonly password: string;
  readonly options: RedisServerOptions;
}

/** Starts it on the port of the options, or tries free ports.
 * @returns undefined if the program is not installed */
async function startOnSomePort(plan: Start): Promise<RedisServer | undefined> {
  const { options } = plan;
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    try {
      return await start(plan, port);
    } catch (error) {
      if (error instanceof ServerError && error.isMissing) return undefined;
      // Another process may have taken the free port before the server did.
      if (options.port !== undefined || attempt === 5) throw error;
      options.log.debug({ err: error, port }, 'Redis did not start on this port; trying another');
    }
  }
}

class ServerError extends Error {
  override readonly name = 'ServerError';
  /** The program is not installed. */
  readonly isMissing: boolean;

  constructor(isMissing: boolean, message: string, options: ErrorOptions) {
    super(message, options);
    this.isMissing = isMissing;
  }
}

async function start(
  { program, dataDir, password, options }: Start,
  port: number,
): Promise<RedisServer> {
  // Settings go through stdin: every user of the machine can read a process's arguments.
  const child = spawn(program, ['-'], {
    stdio: ['pipe', 'pipe', 'pipe'],
    cwd: dataDir,
    detached: true,
  });
  const lastLines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      lastLines.push(...text.split('\n').filter((line) => line.trim() !== ''));
      lastLines.splice(0, lastLines.length - 5);
    });
  }
  let ended: string | undefined;
  let isMissing = false;
  const exited = new Promise<string>((resolveExit) => {
    const end = (how: string): void => {
      ended ??= how;
      resolveExit(ended);
    };
    child.once('error', (error: NodeJS.ErrnoException) => {
      isMissing = error.code === 'ENOENT';
      end(error.message);
    });
    child.once('close', (code, signal) => end(`ended with ${signal ?? `code ${code}`}`));
  });
  const watchdog = startWatchdog(child);
  child.stdin.on('error', () => undefined);
  child.stdin.end(configuration(dataDir, port, password, options.settings ?? []));
  const url = `redis://:${password}@127.0.0.1:${port}`;
  const close = (graceMs = 5000): Promise<void> => stop(child, exited, graceMs);
  // At once, before the system can give Redis' process id to another process.
  void exited.then(() => watchdog?.kill('SIGKILL'));
  try {
    await waitForAnswer(url, child, () => ended);
  } catch (cause) {
    await close(0);
    const output = lastLines.join(' | ') || (ended ?? 'no answer');
    throw new ServerError(isMissing, `${program} did not start on port ${port}: ${output}`, {
      cause,
    });
  }
  options.log.debug({ port, pid: child.pid, dataDir }, 'Redis started');
  return { url, port, pid: child.pid ?? 0, exited, close };
}

/** Starts a shell that ends Redis when this process is killed: it reads from a pipe that the kernel
 * closes when this process ends. */
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
    // The frequency of the timer that ends blocked reads: every 10 ms instead of 100.
    'hz 100',
    // A job's options are longer than 64 bytes; compact hashes take 40 % less memory.
    'hash-max-listpack-value 1024',
    ...more,
  ];
  return `${lines.join('\n')}\n`;
}

/** Waits until the child answers.
 * @throws Error where it ended, did not answer within START_MS, or another server answers */
async function waitForAnswer(
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
    await sleep(10);
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
    // connect() may never end at a server that is not Redis, hence the timeout; and ioredis reports
    // a refusal only as an event.
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

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
