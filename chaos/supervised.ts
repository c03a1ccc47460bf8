import { type ChildProcess, spawn } from 'node:child_process';
import { createWriteStream, type WriteStream } from 'node:fs';
import { systemClock } from '#src/runtime/clock.ts';

/** How to start a process. */
export interface SupervisedPlan {
  readonly name: string;
  /** Executable and arguments. */
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly logFile: string;
  /** Called when the process ends without having been killed, or logs a defect. */
  readonly onTrouble: (what: string) => void;
}

type Facts = Readonly<Record<string, string>>;

const DEFECT = /defect of sutler|uncaught|start failed/i;
const AFTER_CRASH_MS = 500;

/** A child process that can be killed and frozen, and that is restarted when it ends. */
export class Supervised {
  readonly name: string;
  readonly #plan: SupervisedPlan;
  readonly #file: WriteStream;
  #child: ChildProcess | undefined;
  #facts: Facts = {};
  /** How long it stays down after a kill; undefined unless it is being killed. */
  #downMs: number | undefined;
  #stopping = false;
  #gone: () => void = () => undefined;

  constructor(plan: SupervisedPlan) {
    this.#plan = plan;
    this.name = plan.name;
    this.#file = createWriteStream(plan.logFile, { flags: 'a' });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** What it announced when it was ready last. */
  get facts(): Facts {
    return this.#facts;
  }

  /** Starts it.
   * @returns the facts that it announces when it is ready
   * @throws Error if it ends before that */
  start(): Promise<Facts> {
    return new Promise((resolve, reject) => {
      const child = this.#spawn();
      child.on('message', () => resolve(this.#facts));
      child.once('close', (code) =>
        reject(
          new Error(
            `${this.name} ended with ${code} before it was ready: see ${this.#plan.logFile}`,
          ),
        ),
      );
    });
  }

  /** Sends SIGKILL; resolves when the process has been restarted. */
  async kill(downMs: number): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#downMs = downMs;
    const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
    child.kill('SIGKILL');
    await closed;
    await systemClock.sleep(downMs);
  }

  /** Sends SIGSTOP, and after a while SIGCONT if it is still the same process. */
  async freeze(forMs: number, signal: AbortSignal): Promise<void> {
    const child = this.#child;
    child?.kill('SIGSTOP');
    await systemClock.sleep(forMs, signal);
    if (child === this.#child) child?.kill('SIGCONT');
  }

  /** Sends SIGTERM, and SIGKILL if it has not ended after the grace period. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    const child = this.#child;
    if (child !== undefined) {
      const gone = new Promise<void>((resolve) => (this.#gone = resolve));
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      const killer = setTimeout(() => child.kill('SIGKILL'), graceMs);
      await gone;
      clearTimeout(killer);
    }
    this.#file.end();
  }

  /** Kills it without waiting, for the exit of this process. */
  killNow(): void {
    this.#stopping = true;
    this.#child?.kill('SIGKILL');
  }

  #spawn(): ChildProcess {
    const [file, ...args] = this.#plan.command;
    // A process group of its own: Ctrl-C in a terminal reaches only the parent.
    const child = spawn(file, args, {
      env: this.#plan.env,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      detached: true,
    });
    this.#child = child;
    child.on('message', (message: unknown) => {
      // The sender is announce() in runtime/process.ts.
      if (typeof message === 'object' && message !== null && 'facts' in message)
        this.#facts = message.facts as Facts;
    });
    this.#file.write(`--- ${this.name} pid ${child.pid} at ${new Date().toISOString()}\n`);
    for (const stream of [child.stdout, child.stderr]) {
      let rest = '';
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#file.write(text);
        const lines = `${rest}${text}`.split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) if (DEFECT.test(line)) this.#plan.onTrouble(line);
      });
    }
    child.on('error', (error) => this.#plan.onTrouble(error.message));
    child.once('close', (code, signal) => void this.#closed(code, signal));
    return child;
  }

  async #closed(code: number | null, signal: NodeJS.Signals | null): Promise<void> {
    this.#child = undefined;
    this.#gone();
    if (this.#stopping) return;
    if (this.#downMs === undefined)
      this.#plan.onTrouble(`ended by itself (${signal ?? `code ${code}`})`);
    const downMs = this.#downMs ?? AFTER_CRASH_MS;
    this.#downMs = undefined;
    await systemClock.sleep(downMs);
    // stop() may have been called meanwhile.
    if (!this.#stopping) this.#spawn();
  }
}
