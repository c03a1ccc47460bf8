import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';

/** A Redis server that runs as a child process of this one, on loopback. */
export interface RedisServer {
  /** Contains the password, which is random: a server that accepts it is our child. */
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

/** Starts Redis with the settings that queues need: append-only file, no eviction, jobs
 * stored compactly. Resolves when it answers.
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

/** Starts the program on the port of the options, or tries free ports.
 * @returns undefined if the program is not installed */
async function startOnSomePort(plan: Start): Promise<RedisServer | undefined> {
  const { options } = plan;
  for (let attempt = 1; ; attempt += 1) {
    const port = options.port ?? (await freePort());
    try {
      return await start(plan, port);
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
      // Another process may have taken the free port before the server did.
      if (options.port !== undefined || attempt === 5) throw error;
      options.log.debug({ err: error, port }, 'Redis did not start on this port; trying another');
    }
  }
}

/** @throws the error ENOENT of spawn if the program is not installed */
async function start(
  { program, dataDir, password, options }: Start,
  port: number,
): Promise<RedisServer> {
  // Settings go through stdin: every user of the machine can read a process's arguments.
  const child = spawn(program, ['-'], { cwd: dataDir, detached: true });
  child.stdin.on('error', () => undefined);
  await once(child, 'spawn');
  const lastLines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      lastLines.push(...text.split('\n').filter((line) => line.trim() !== ''));
      lastLines.splice(0, lastLines.length - 5);
    });
  }
  let ended: string | undefined;
  const exited = once(child, 'close').then(
    ([code, signal]) => (ended = `ended with ${signal ?? `code ${code}`}`),
    (error: unknown) => (ended = messageOf(error)),
  );
  const watchdog = startWatchdog(child);
  child.stdin.end(configuration(dataDir, port, password, options.settings ?? []));
  const url = `redis://:${password}@127.0.0.1:${port}`;
  const close = (graceMs = 5000): Promise<void> => stop(child, exited, graceMs);
  // At once: the watchdog kills by process id, and the system may give this id to another process.
  void exited.then(() => watchdog?.kill('SIGKILL'));
  try {
    await waitForAnswer(url, child, () => ended);
  } catch (cause) {
    await close(0);
    const output = lastLines.join(' | ') || (ended ?? 'no answer');
    throw new Error(`${program} did not start on port ${port}: ${output}`, { cause });
  }
  options.log.debug({ port, pid: child.pid, dataDir }, 'Redis started');
  return { url, port, pid: child.pid ?? 0, exited, close };
}

/** Starts a shell that ends Redis when this process is killed: the shell reads from a pipe, which
 * the kernel closes when this process ends. */
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
    // Keeps jobs compact, with 40 % less memory: their options exceed the default of 64 bytes.
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
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    // A server that is not Redis may never answer.
    commandTimeout: ANSWER_MS,
    disconnectTimeout: 200,
  });
  // The command rejects too.
  redis.on('error', () => undefined);
  try {
    return /^process_id:(\d+)/m.exec(await redis.info('server'))?.[1];
  } finally {
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
