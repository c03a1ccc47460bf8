import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ProcessClock } from './process-clock.ts';
import { cpuMs, rssBytes } from '../../bench/proc.ts';

/** The environment in k8s/gateway/sidecar.yaml; it influences how much memory stays in use. */
const SIDECAR = readFileSync(new URL('../../../k8s/gateway/sidecar.yaml', import.meta.url), 'utf8');
const NODE_FLAGS = /NODE_OPTIONS, value: ([^}]+?) *}/.exec(SIDECAR)?.[1]?.split(' ');
const MALLOC_ARENA_MAX = /MALLOC_ARENA_MAX, value: '(\d+)' }/.exec(SIDECAR)?.[1];
/** V8 frees the memory of a burst after some idle seconds, in up to three rounds. */
const SHRINK_MS = 60_000;

/** A gateway as k8s/ runs it, in a process of its own. */
export class GatewayProcess {
  /** Of all its listeners, as it announced them. */
  readonly address: string;
  readonly #child: ChildProcess;
  readonly #log: string[];
  readonly #pid: number;

  private constructor(child: ChildProcess, address: string, log: string[]) {
    this.#child = child;
    this.#pid = child.pid ?? 0;
    this.address = address;
    this.#log = log;
  }

  /** Starts one with these flags.
   * @param clock  its clock, if that is to be shifted
   * @throws Error if it does not start; its log is in the message */
  static async start(args: readonly string[], clock?: ProcessClock): Promise<GatewayProcess> {
    const cli = fileURLToPath(import.meta.resolve('#src/cli.ts'));
    const child = spawn(
      process.execPath,
      [...(NODE_FLAGS ?? []), ...(clock?.nodeArgs ?? []), cli, 'csi-gateway', ...args],
      {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        env: { ...process.env, MALLOC_ARENA_MAX, ...clock?.env },
      },
    );
    const log: string[] = [];
    child.stderr?.on('data', (chunk: Buffer) => log.push(chunk.toString()));
    const end = new AbortController();
    const announced = once(child, 'message', end).then(
      ([message]) => (message as { facts: { listen: string } }).facts.listen,
    );
    const failed = once(child, 'exit', end).then(() => {
      throw new Error(`the gateway did not start: ${log.join('')}`);
    });
    try {
      return new GatewayProcess(child, await Promise.race([announced, failed]), log);
    } finally {
      end.abort();
      announced.catch(() => undefined);
      failed.catch(() => undefined);
    }
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** How it ended: its exit code or the signal; '' while it runs. */
  get ending(): string {
    return this.hasEnded ? String(this.#child.signalCode ?? this.#child.exitCode) : '';
  }

  /** Lines of its log that show a defect. */
  get defects(): readonly string[] {
    return this.#log
      .join('')
      .split('\n')
      .filter((line) => / (ERROR|FATAL) /.test(line) || line.includes('Warning'));
  }

  /** Resident memory; 0 once it has ended. */
  async rss(): Promise<number> {
    return rssBytes(this.#pid).catch(() => 0);
  }

  /** Processor time so far; NaN once it has ended. */
  async cpuMs(): Promise<number> {
    return cpuMs(this.#pid).catch(() => Number.NaN);
  }

  /** Waits until the memory hardly changes, at most 2 s, and returns it. */
  async stableRss(): Promise<number> {
    let last = await this.rss();
    for (let i = 0; i < 8; i += 1) {
      await delay(250);
      const now = await this.rss();
      if (Math.abs(now - last) < 200_000) return now;
      last = now;
    }
    return last;
  }

  /** Waits until the memory is at most `limitBytes`, no longer than V8 needs, and returns it.
   * @param work  what the gateway does meanwhile: V8 of Node 24 frees nothing while there is
   *   nothing to do */
  async shrunkRss(limitBytes: number, work: () => Promise<unknown>): Promise<number> {
    const endMs = Date.now() + SHRINK_MS;
    let now = await this.rss();
    while (now > limitBytes && Date.now() < endMs && !this.hasEnded) {
      await work();
      await delay(250);
      now = await this.rss();
    }
    return now;
  }

  /** Sends SIGTERM and waits until it has ended. */
  async stop(): Promise<void> {
    if (this.hasEnded) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await exited;
  }
}
