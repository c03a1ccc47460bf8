import {
  parseFlags,
  renderHelp,
  UsageError,
  type Flags,
  type FlagSpec,
  type FlagTable,
  type ParseInput,
} from './flags.ts';
import { HealthChecks } from './health.ts';
import { Closers } from './lifecycle.ts';
import { createLogger, type Logger } from './log.ts';
import { createRegistry, type Registry } from './metrics.ts';
import type { processFlags } from './process-flags.ts';
import { version } from './version.ts';

/** The parts of Node's `process` that a main needs; a test can pass its own. */
export interface Host {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pid: number;
  readonly stdout: { write(text: string): unknown };
  readonly stderr: { write(text: string): unknown };
  on(event: 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'disconnect', listener: () => void): unknown;
  on(
    event: 'uncaughtException' | 'unhandledRejection',
    listener: (error: unknown) => void,
  ): unknown;
  exit(code: number): void;
  /** Present in a child that was started with an IPC channel. */
  readonly send?: ((message: unknown) => unknown) | undefined;
}

/** What cli.ts hands to the process it dispatches to. */
export interface Invocation {
  readonly host: Host;
  /** Arguments after the process's name. */
  readonly argv: readonly string[];
  /** Flags of all processes, so that one argument list serves all. */
  readonly known: FlagTable;
  readonly idle?: FlagTable;
  readonly retired: NonNullable<ParseInput['retired']>;
}

/** What a running process has in hand. */
export interface ProcessContext<T extends FlagTable> {
  readonly flags: Flags<T>;
  readonly env: Host['env'];
  readonly pid: number;
  readonly argv: readonly string[];
  /** Arguments that are no flags. */
  readonly words: readonly string[];
  readonly stdout: Host['stdout'];
  readonly stderr: Host['stderr'];
  readonly log: Logger;
  readonly metrics: Registry;
  readonly health: HealthChecks;
  readonly closers: Closers;
  /** Aborts at the first SIGTERM or SIGINT, or when the parent is gone. */
  readonly stopping: AbortSignal;
  /** Tells the log, and the parent where there is one, an address or another fact worth knowing. */
  announce(facts: Readonly<Record<string, string>>): void;
  /** Begins the orderly end, as SIGTERM does; the process exits with the code. */
  stop(code: number): void;
}

export interface ProcessDescription<T extends FlagTable> {
  readonly name: string;
  readonly summary: string;
  readonly table: T;
  /** Name of the one argument that is no flag, where it takes one. */
  readonly word?: string;
  /** Opens everything and returns; the process then lives until a signal. */
  readonly start: (context: ProcessContext<T>) => Promise<void>;
}

/** A signal to a whole process group can arrive twice, from the sender and handed on by a parent:
 * that is one wish, not impatience. */
const SAME_SIGNAL_MS = 1_000;

/** Runs one process from flags to exit: 0 after a signal, 2 for a UsageError, 1 for a failed start.
 */
export async function runProcess<T extends Record<keyof typeof processFlags, FlagSpec> & FlagTable>(
  invocation: Invocation,
  description: ProcessDescription<T>,
): Promise<void> {
  const { host } = invocation;
  const usage = (error: UsageError): void => {
    host.stderr.write(`sutler ${description.name}: ${error.message.replaceAll('\n', ' ')}\n`);
    host.exit(2);
  };
  let parsed: ReturnType<typeof parseFlags<T>>;
  try {
    parsed = parseFlags(description.table, {
      ...invocation,
      env: host.env,
      maxWords: description.word === undefined ? 0 : 1,
    });
  } catch (error) {
    if (error instanceof UsageError) return usage(error);
    throw error;
  }
  if (parsed.kind !== 'run') {
    host.stdout.write(
      parsed.kind === 'version'
        ? `sutler ${version}\n`
        : renderHelp(description.name, description.summary, description.table, description.word),
    );
    return host.exit(0);
  }
  // Every table contains processFlags (the constraint on T says so); Flags<T> can't show it for a
  // generic T.
  const common = parsed.flags as unknown as Flags<typeof processFlags>;
  const log = createLogger({
    name: description.name,
    verbosity: common.v,
    format: common.loggingFormat === 'json' ? 'json' : 'text',
    write: (line) => host.stderr.write(line),
  });
  for (const warning of parsed.warnings) log.warn(warning);
  if (parsed.unused.length > 0)
    log.debug({ flags: parsed.unused }, 'flags of other processes: accepted, no use for them here');

  const closers = new Closers();
  const stopping = new AbortController();
  let stopped: (code: number) => void = () => undefined;
  const ended = new Promise<number>((resolve) => (stopped = resolve));
  const stop = (code: number, reason: string): void => {
    if (stopping.signal.aborted) return;
    log.info({ reason }, 'stopping');
    stopping.abort(new Error(reason));
    stopped(code);
  };
  let signalledMs = 0;
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    host.on(signal, () => {
      if (!stopping.signal.aborted) {
        signalledMs = Date.now();
        stop(0, signal);
      } else if (Date.now() - signalledMs > SAME_SIGNAL_MS) host.exit(1);
    });
  }
  host.on('disconnect', () => stop(0, 'the parent process is gone'));
  host.on('unhandledRejection', (error) =>
    log.error({ err: error }, 'unhandled rejection: a defect of sutler, please report it'),
  );
  host.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'uncaught exception: a defect of sutler, please report it');
    host.exit(1);
  });

  try {
    await description.start({
      flags: parsed.flags,
      env: host.env,
      pid: host.pid,
      argv: invocation.argv,
      words: parsed.words,
      stdout: host.stdout,
      stderr: host.stderr,
      log,
      metrics: createRegistry(),
      health: new HealthChecks(),
      closers,
      stopping: stopping.signal,
      announce: (facts) => {
        log.info(facts, 'ready');
        host.send?.({ kind: 'announce', facts });
      },
      stop: (code) => stop(code, 'done'),
    });
  } catch (error) {
    await closers.close();
    if (error instanceof UsageError) return usage(error);
    log.fatal({ err: error }, 'start failed');
    return host.exit(1);
  }
  const code = await ended;
  for (const error of await closers.close())
    log.warn({ err: error, cause: error.cause }, 'closing failed');
  host.exit(code);
}
