import { performance } from 'node:perf_hooks';
import { type Logger as PinoLogger, pino } from 'pino';
import type { Fields } from './json.ts';
import { toLoggable } from './loggable.ts';
import { escapeControls } from './printable.ts';

/** A structured log: constant messages with fields. Levels follow klog: info and above always,
 * debug from -v=4, trace from -v=6. */
export type Logger = PinoLogger;

/** pino's number for the level error. */
const ERROR = 50;

/** Creates the logger of a process. All parts receive it, or a child of it, as an argument. All
 * values pass toLoggable, and a line contains no raw control characters.
 * @param o.verbosity  the value of -v
 * @param o.least      the least level without -v
 * @param o.write      receives whole lines, with the newline */
export function createLogger(o: {
  readonly name: string;
  readonly verbosity: number;
  readonly least?: 'info' | 'warn';
  readonly format: 'text' | 'json';
  readonly write: (line: string) => void;
}): Logger {
  const level = o.verbosity >= 6 ? 'trace' : o.verbosity >= 4 ? 'debug' : (o.least ?? 'info');
  const toLine = o.format === 'json' ? JSON.stringify : toText;
  const log: Logger = pino(
    {
      level,
      base: { process: o.name },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      // The hook has already replaced the errors.
      serializers: { err: (error: unknown) => error },
      hooks: {
        logMethod([first, ...rest], method, level) {
          // Warnings have no stack: they are for operators, not for developers.
          const hasStacks = level >= ERROR || this.isLevelEnabled('debug');
          const loggable = (value: unknown): unknown => toLoggable(value, hasStacks);
          const fields = first instanceof Error ? { err: first } : first;
          method.apply(this, [fields, ...rest].map(loggable) as [object]);
        },
      },
    },
    // If logger and line have the same field, JSON has both, and parse keeps the later: the line's.
    { write: (json: string) => o.write(`${escapeControls(toLine(JSON.parse(json) as Fields))}\n`) },
  );
  // Children inherit this method.
  // oxlint-disable-next-line typescript/unbound-method -- called with `this` below
  const { child } = log;
  log.child = function (this: Logger, fields: object, ...options: never[]) {
    return child.call(this, toLoggable(fields) as object, ...options);
  } as typeof child;
  return log;
}

/** Writes nothing; for tests. */
export const silentLog: Logger = pino({ level: 'silent' });

function toText({ level, time, process, msg = '', ...fields }: Fields): string {
  const rest = Object.entries(fields).map(([key, value]) => ` ${key}=${fieldText(value)}`);
  return `${String(time)} ${String(level).toUpperCase()} ${String(process)}: ${String(msg)}${rest.join('')}`;
}

function fieldText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@-]+$/.test(value)) return value;
  if (typeof value === 'object' && value !== null && 'stack' in value && 'message' in value)
    return JSON.stringify(value.message);
  return JSON.stringify(value) ?? '';
}

const INTERVAL_MS = 10_000;

/** Logs warnings that others can cause at will. To keep them from flooding the log, warns with each
 * message once in 10 s, and otherwise logs at debug level. */
export class RareWarnings {
  readonly #log: Logger;
  /** By message. */
  readonly #warnedMs = new Map<string, number>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param message  one of a few constant texts */
  warn(fields: object, message: string): void {
    const nowMs = performance.now();
    if (nowMs - (this.#warnedMs.get(message) ?? -Infinity) < INTERVAL_MS)
      return this.#log.debug(fields, message);
    this.#warnedMs.set(message, nowMs);
    this.#log.warn(fields, message);
  }
}

/** With -v=6: logs that a step has ended, when it began (Unix ms), and how long it took.
 * @param startedMs  performance.now() when the step began
 * @param fields     more fields of the line */
export function traceStep(log: Logger, step: string, startedMs: number, fields: object = {}): void {
  if (!log.isLevelEnabled('trace')) return;
  const atMs = performance.timeOrigin + startedMs;
  log.trace({ step, ...fields, atMs, tookMs: performance.now() - startedMs }, 'step ended');
}
