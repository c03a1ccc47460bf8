import { spawn, type ChildProcess } from 'node:child_process';
import { systemClock, type Clock } from './clock.ts';
import type { Logger } from './log.ts';

/** How to start one process of sutler as a child. */
export interface ChildPlan {
  readonly name: string;
  /** Executable and arguments. */
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Receives what the child prints, as it comes. */
  readonly output: (text: string) => void;
}

export interface ChildrenOptions {
  readonly log: Logger;
  /** A child ended with 2: flags, values or ports are wrong, and no restart mends that. */
  readonly onUsageError: (name: string, line: string) => void;
  readonly clock?: Clock;
}

export interface Child {
  readonly name: string;
  readonly pid: number | undefined;
  /** What the child announced once it was ready: addresses and such. Rejects if it ends before. */
  readonly announced: Promise<Readonly<Record<string, string>>>;
  /** SIGTERM, then SIGKILL after the grace; resolves when it is gone. */
  stop(graceMs: number): Promise<void>;
}

/** Longest pause before a child that keeps dying is started again. */
const RESTART_MAX_MS = 10_000;

/** Starts a child with its own pid, starts it again when it dies, and stops it. The IPC channel
 * tells the child when this process is gone. */
export function startChild(plan: ChildPlan, options: ChildrenOptions): Child {
  const clock = options.clock ?? systemClock;
  const stopping = new AbortController();
  let running: ChildProcess | undefined;
  /** The one line with which a process of ours refuses its flags. */
  let complaint = '';
  const output = (text: string): void => {
    complaint = /^sutler [\w-]+: .+$/m.exec(text)?.[0] ?? complaint;
    plan.output(text);
  };
  let tell: (facts: Readonly<Record<string, string>>) => void = () => undefined;
  let refuse: (error: Error) => void = () => undefined;
  const announced = new Promise<Readonly<Record<string, string>>>((resolve, reject) => {
    tell = resolve;
    refuse = reject;
  });
  announced.catch(() => undefined);

  const loop = async (): Promise<void> => {
    for (let deaths = 0; !stopping.signal.aborted; deaths += 1) {
      const startedMs = clock.nowMs();
      const { code, signal } = await runOnce(
        { ...plan, output },
        (child) => (running = child),
        tell,
      );
      running = undefined;
      if (stopping.signal.aborted) return;
      refuse(new Error(`${plan.name} ended with ${signal ?? code} before it was ready`));
      if (code === 2) return options.onUsageError(plan.name, complaint);
      if (clock.nowMs() - startedMs > RESTART_MAX_MS) deaths = 0;
      const pauseMs = Math.min(RESTART_MAX_MS, 200 * 2 ** deaths);
      options.log.warn(
        { child: plan.name, code, signal, pauseMs },
        'child process ended; starting it again',
      );
      await clock.sleep(pauseMs, stopping.signal);
    }
  };
  const ended = loop();
  return {
    name: plan.name,
    get pid() {
      return running?.pid;
    },
    announced,
    async stop(graceMs) {
      stopping.abort();
      const child = running;
      child?.kill('SIGTERM');
      const killer = setTimeout(() => child?.kill('SIGKILL'), graceMs);
      await ended;
      clearTimeout(killer);
    },
  };
}

function runOnce(
  plan: ChildPlan,
  started: (child: ChildProcess) => void,
  announced: (facts: Readonly<Record<string, string>>) => void,
): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
  return new Promise((resolve) => {
    const [file, ...args] = plan.command;
    // Its own process group: Ctrl-C in a terminal reaches the parent only, which then ends its
    // children in order.
    const child = spawn(file, args, {
      env: plan.env,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      detached: true,
    });
    started(child);
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => plan.output(text));
    child.on('message', (message: unknown) => {
      const facts = announcement(message);
      if (facts !== undefined) announced(facts);
    });
    child.once('error', (error) => {
      plan.output(`${error.message}\n`);
      if (child.pid === undefined) resolve({ code: null, signal: null });
    });
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
}

function announcement(message: unknown): Readonly<Record<string, string>> | undefined {
  if (
    typeof message !== 'object' ||
    message === null ||
    !('kind' in message) ||
    message.kind !== 'announce' ||
    !('facts' in message)
  )
    return undefined;
  // The sender is our own announce(), one line away in process.ts.
  return message.facts as Readonly<Record<string, string>>;
}
