import { type ChildProcess, spawn } from 'node:child_process';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';

/** How to start one process of sutler as a child. */
export interface ChildPlan {
  readonly name: string;
  /** Executable and arguments. */
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Receives what the child prints. */
  readonly output: (text: string) => void;
}

type Facts = Readonly<Record<string, string>>;

export interface Child {
  readonly name: string;
  readonly pid: number | undefined;
  /** Addresses and other facts that the child sent when it was ready. Rejects if the child ends
   * before that. */
  readonly announced: Promise<Facts>;
  /** Sends SIGTERM, and SIGKILL after the grace period; resolves when the child has ended. */
  stop(graceMs: number): Promise<void>;
}

/** The longest pause before a restart. After a child ran for longer, the pauses begin anew. */
const RESTART_MAX_MS = 10_000;

/** Starts a child process, and starts it again whenever it ends, until it is stopped. The child's
 * IPC channel closes when this process ends.
 * @param o.onUsageError  called when the child exits with status 2: its flags, values or ports are
 *                        wrong, so it is not restarted; `line` is its message or empty */
export function startChild(
  plan: ChildPlan,
  o: {
    readonly log: Logger;
    readonly onUsageError: (name: string, line: string) => void;
    readonly clock?: Clock;
  },
): Child {
  const { log, onUsageError, clock = systemClock } = o;
  const stopping = new AbortController();
  let running: ChildProcess | undefined;
  let usageLine = '';
  const output = (text: string): void => {
    // How runProcess prints a UsageError.
    usageLine = /^sutler [\w-]+: .+$/m.exec(text)?.[0] ?? usageLine;
    plan.output(text);
  };
  let onAnnounce: (facts: Facts) => void = () => undefined;
  let onEarlyEnd: (error: Error) => void = () => undefined;
  const announced = new Promise<Facts>((resolve, reject) => {
    onAnnounce = resolve;
    onEarlyEnd = reject;
  });
  announced.catch(() => undefined);

  const keepRunning = async (): Promise<void> => {
    for (let restarts = 0; !stopping.signal.aborted; restarts += 1) {
      const startedMs = clock.nowMs();
      const onStart = (child: ChildProcess): void => void (running = child);
      const { code, signal } = await runOnce({ ...plan, output }, onStart, onAnnounce);
      running = undefined;
      if (stopping.signal.aborted) return;
      onEarlyEnd(new Error(`${plan.name} ended with ${signal ?? code} before it was ready`));
      if (code === 2) return onUsageError(plan.name, usageLine);
      if (clock.nowMs() - startedMs > RESTART_MAX_MS) restarts = 0;
      const pauseMs = Math.min(RESTART_MAX_MS, 200 * 2 ** restarts);
      log.warn({ child: plan.name, code, signal, pauseMs }, 'child process ended; restarting it');
      await clock.sleep(pauseMs, stopping.signal);
    }
  };
  const ended = keepRunning();
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
  onStart: (child: ChildProcess) => void,
  onAnnounce: (facts: Facts) => void,
): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
  return new Promise((resolve) => {
    const [file, ...args] = plan.command;
    // In its own process group: Ctrl-C in a terminal reaches only the parent, which then stops its
    // children in order.
    const child = spawn(file, args, {
      env: plan.env,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      detached: true,
    });
    onStart(child);
    for (const stream of [child.stdout, child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => plan.output(text));
    child.on('message', (message: unknown) => {
      const facts = parseAnnouncement(message);
      if (facts) onAnnounce(facts);
    });
    child.once('error', (error) => {
      plan.output(`${error.message}\n`);
      if (child.pid === undefined) resolve({ code: null, signal: null });
    });
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
}

/** The facts of a message that `announce` of process.ts sent; undefined for any other message. */
function parseAnnouncement(message: unknown): Facts | undefined {
  if (typeof message !== 'object' || message === null) return undefined;
  const { kind, facts } = message as { readonly kind?: unknown; readonly facts?: unknown };
  if (kind !== 'announce' || typeof facts !== 'object' || facts === null) return undefined;
  return Object.fromEntries(Object.entries(facts).map(([name, fact]) => [name, String(fact)]));
}
