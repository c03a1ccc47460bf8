import { performance } from 'node:perf_hooks';
import { type Logger as PinoLogger, pino } from 'pino';
import type { Clock } from './clock.ts';
import { isFields, parseJson } from './json.ts';
import { toLoggable } from './loggable.ts';
import { escapeControls } from './printable.ts';

/** A structured log: constant messages with fields. Levels follow klog: info and above always,
 * debug from -v=4, trace from -v=6. */
export type Logger = PinoLogger;

/** Creates the logger of a process. All parts receive it, or a child of it, as an argument. All
 * that is logged passes toLoggable, and a line contains no raw control characters.
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
  const toLine = o.format === 'json' ? (json: string) => json : toText;
  const log: Logger = pino(
    {
      level,
      base: { process: o.name },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      // The hook has already replaced the errors.
      serializers: { err: (error: unknown) => error },
      hooks: {
        logMethod(args, method, level) {
          const hasStacks = level >= ERROR || this.isLevelEnabled('debug');
          method.apply(this, loggableArguments(args, fieldsOf(this), hasStacks) as typeof args);
        },
      },
    },
    { write: (json: string) => o.write(`${escapeControls(toLine(json.trimEnd()))}\n`) },
  );
  // pino would write a field of the child again that a line has too. Children inherit this method.
  // oxlint-disable-next-line typescript/unbound-method -- called with `this` below
  const { child } = log;
  log.child = function (this: Logger, fields: object, ...options: never[]) {
    const made = child.call(this, {}, ...options);
    return Object.assign(made, { [FIELDS]: { ...fieldsOf(this), ...fields } });
  } as typeof child;
  return log;
}

/** pino's number of that level. */
const ERROR = 50;
/** The fields of a child and of those that it was made from. */
const FIELDS = Symbol('fields');

function fieldsOf(log: Logger): object {
  return (log as { readonly [FIELDS]?: object })[FIELDS] ?? {};
}

/** What a caller passed to a method of the logger, with the fields of the logger that the line does
 * not have, and without what must not be logged.
 * @param hasStacks  a warning is for people who run sutler, not for those who debug it */
function loggableArguments(
  [first, ...rest]: readonly unknown[],
  fields: object,
  hasStacks: boolean,
): readonly unknown[] {
  const loggable = (value: unknown): unknown => toLoggable(value, hasStacks);
  const others = rest.map(loggable);
  if (typeof first === 'string') return [loggable(fields), loggable(first), ...others];
  if (!(first instanceof Error)) {
    const own = loggable(first);
    return isFields(own)
      ? [{ ...(loggable(fields) as object), ...own }, ...others]
      : [loggable(fields), own, ...others];
  }
  const err = loggable(first) as { readonly message: string };
  const message = others.length === 0 ? [err.message] : others;
  return [{ ...(loggable(fields) as object), err }, ...message];
}

/** Writes nothing; for tests. */
export const silentLog: Logger = pino({ level: 'silent' });

function toText(line: string): string {
  const parsed = parseJson(line);
  if (!isFields(parsed)) return line;
  const { level, time, process, msg, ...fields } = parsed;
  const rest = Object.entries(fields).map(([key, value]) => ` ${key}=${fieldText(value)}`);
  const message = typeof msg === 'string' ? msg : '';
  return `${String(time)} ${String(level).toUpperCase()} ${String(process)}: ${message}${rest.join('')}`;
}

function fieldText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@-]+$/.test(value)) return value;
  if (typeof value === 'object' && value !== null && 'stack' in value && 'message' in value)
    return JSON.stringify(value.message);
  return JSON.stringify(value) ?? '';
}

const INTERVAL_MS = 10_000;

/** Warns of what others cause, each message at most every 10 s and otherwise at debug level, so
 * that nobody can flood the log. */
export class RareWarnings {
  readonly #log: Logger;
  readonly #clock: Clock;
  /** By message. */
  readonly #warnedMs = new Map<string, number>();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** @param message  one of a few constant texts */
  warn(fields: object, message: string): void {
    const nowMs = this.#clock.nowMs();
    if (nowMs - (this.#warnedMs.get(message) ?? -Infinity) < INTERVAL_MS)
      return this.#log.debug(fields, message);
    this.#warnedMs.set(message, nowMs);
    this.#log.warn(fields, message);
  }
}

/** With -v=6: logs a step that ends now: when it began, in ms of Unix time, and how long it took.
 * @param startedMs  what performance.now() was when the step began
 * @param fields     more fields of the line */
export function traceStep(log: Logger, step: string, startedMs: number, fields: object = {}): void {
  if (!log.isLevelEnabled('trace')) return;
  const atMs = performance.timeOrigin + startedMs;
  log.trace({ step, ...fields, atMs, tookMs: performance.now() - startedMs }, 'step ended');
}
