import { setMaxListeners } from 'node:events';
import { HealthChecks } from './health.ts';
import { type Flags, type FlagSpec, type FlagTable, UsageError } from './flags.ts';
import {
  type CommandHelp,
  type Parsed,
  parseFlags,
  type ParseInput,
  renderHelp,
} from './parse-flags.ts';
import { Closers } from './closers.ts';
import { createLogger, type Logger } from './log.ts';
import { createRegistry, type Registry } from './metrics.ts';
import { strikeCredentials } from './loggable.ts';
import { escapeControls } from './printable.ts';
import type { logFlags } from './process-flags.ts';
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

/** What cli.ts passes to the process that it starts. */
export interface Invocation {
  readonly host: Host;
  /** Arguments after the process's name. */
  readonly argv: readonly string[];
  /** Flags of all processes, so that one argument list can serve all. */
  readonly known: FlagTable;
  /** For a command: the flags of the sutler in whose container it runs. */
  readonly inherited?: ParseInput['inherited'];
}

/** What the start function of a process receives. */
export interface ProcessContext<T extends FlagTable> extends Pick<
  Host,
  'env' | 'pid' | 'stdout' | 'stderr'
> {
  readonly flags: Flags<T>;
  /** Arguments after the process's name. */
  readonly argv: readonly string[];
  readonly words: readonly string[];
  /** The texts of each flag that was given as an argument. */
  readonly given: ReadonlyMap<string, readonly string[]>;
  /** Flags of all processes. */
  readonly known: FlagTable;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly health: HealthChecks;
  readonly closers: Closers;
  /** Aborts at the first SIGTERM, SIGINT or SIGHUP, or when the parent process ends. */
  readonly stopping: AbortSignal;
  /** Logs that the process listens, with addresses and other facts, and tells a parent process. */
  announce(facts: Readonly<Record<string, string>>): void;
  /** Begins to stop, as SIGTERM does. The process then exits with the given status. */
  stop(code: number): void;
}

type ProcessTable = Record<keyof typeof logFlags, FlagSpec> & FlagTable;

export interface ProcessDescription<T extends FlagTable> {
  readonly name: string;
  readonly summary: string;
  readonly table: T;
  /** Set for a command, which only logs warnings and refuses the flags of other processes. */
  readonly command?: CommandHelp;
  /** Opens everything and returns; the process then runs until a signal. */
  readonly start: (context: ProcessContext<T>) => Promise<void>;
}

/** A second signal ends the process at once, unless it comes within this time: sender and parent
 * may both signal a process group. */
const SAME_SIGNAL_MS = 1_000;

/** Runs one process from its flags to its exit. Exit status: after a signal 0, or 1 for a command;
 * after a UsageError its own; after any other failure of the start 1. */
export async function runProcess<T extends ProcessTable>(
  invocation: Invocation,
  description: ProcessDescription<T>,
): Promise<void> {
  const exitForUsage = (error: UsageError): void => {
    const line = escapeControls(strikeCredentials(error.message.replaceAll('\n', ' ')));
    host.stderr.write(`sutler ${description.name}: ${line}\n`);
    host.exit(error.exitStatus);
  };
  const { command } = description;
  const { argv, host, inherited } = invocation;
  let parsed: Parsed<T>;
  try {
    parsed = parseFlags(description.table, {
      ...(command === undefined ? invocation : { argv, inherited }),
      env: host.env,
      maxWords: maxWords(command),
    });
  } catch (error) {
    if (error instanceof UsageError) return exitForUsage(error);
    throw error;
  }
  if (parsed.kind !== 'run') {
    const { name, summary, table } = description;
    host.stdout.write(
      parsed.kind === 'version' ? `sutler ${version}\n` : renderHelp(name, summary, table, command),
    );
    return host.exit(0);
  }
  // Hundreds of calls may share a stop signal, and Node would warn of a leak. Infinity, because
  // BullMQ adds to a connection's limit and would turn 0, which means the same, into 3.
  setMaxListeners(Infinity);
  const log = openLog(host, description, parsed);
  const stopSwitch = createStopSwitch(host, log, command === undefined ? 0 : 1);
  const closers = new Closers();
  try {
    await description.start({
      flags: parsed.flags,
      env: host.env,
      pid: host.pid,
      argv,
      words: parsed.words,
      given: parsed.given,
      known: { ...invocation.known, ...description.table },
      stdout: host.stdout,
      stderr: host.stderr,
      log,
      metrics: createRegistry(),
      health: new HealthChecks(),
      closers,
      stopping: stopSwitch.signal,
      announce: (facts) => {
        log.info(facts, 'started; /readyz says when it works');
        host.send?.({ kind: 'announce', facts });
      },
      stop: (code) => stopSwitch.stop(code, 'done'),
    });
  } catch (error) {
    await closers.close();
    if (error instanceof UsageError) return exitForUsage(error);
    log.fatal({ err: error }, 'start failed');
    return host.exit(1);
  }
  const code = await stopSwitch.exitCode;
  for (const error of await closers.close())
    log.warn({ err: error, cause: error.cause }, 'closing failed');
  host.exit(code);
}

function maxWords({ word = '' }: Partial<CommandHelp> = {}): number {
  if (word === '') return 0;
  return word.endsWith('…') ? Infinity : 1;
}

function openLog<T extends ProcessTable>(
  host: Host,
  { name, command }: ProcessDescription<T>,
  parsed: Extract<Parsed<T>, { kind: 'run' }>,
): Logger {
  // ProcessTable contains logFlags, which Flags<T> does not show for a generic T.
  const flags = parsed.flags as unknown as Flags<typeof logFlags>;
  const log = createLogger({
    name,
    verbosity: flags.v,
    least: command === undefined ? 'info' : 'warn',
    format: flags.loggingFormat === 'json' ? 'json' : 'text',
    write: (line) => host.stderr.write(line),
  });
  for (const warning of parsed.warnings) log.warn(warning);
  // A parent process passes on the arguments of all processes.
  if (parsed.unused.length > 0 && host.send === undefined)
    log.info({ flags: parsed.unused }, 'flags of other processes: accepted, not used here');
  host.on('unhandledRejection', (error) =>
    log.error({ err: error }, 'unhandled rejection: a defect of sutler, please report it'),
  );
  host.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'uncaught exception: a defect of sutler, please report it');
    host.exit(1);
  });
  return log;
}

/** Stops the process once: at a signal, at the end of its parent process, or by `stop`.
 * @returns `exitCode` resolves, and `signal` aborts, once the process is stopping */
function createStopSwitch(host: Host, log: Logger, signalCode: number) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let end: (code: number) => void = () => undefined;
  const exitCode = new Promise<number>((resolve) => (end = resolve));
  const stop = (code: number, reason: string): void => {
    if (signal.aborted) return;
    log.info({ reason }, 'stopping');
    stopping.abort(new Error(reason));
    end(code);
  };
  let signalledMs = 0;
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
    host.on(name, () => {
      if (signal.aborted && Date.now() - signalledMs > SAME_SIGNAL_MS) host.exit(1);
      if (!signal.aborted) signalledMs = Date.now();
      stop(signalCode, name);
    });
  host.on('disconnect', () => stop(0, 'the parent process is gone'));
  return { signal, exitCode, stop };
}
