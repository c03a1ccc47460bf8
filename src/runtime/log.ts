import { pino, type Logger as PinoLogger } from 'pino';
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
        logMethod(args, method) {
          method.apply(this, loggableArguments(args) as typeof args);
        },
      },
    },
    { write: (json: string) => o.write(`${escapeControls(toLine(json.trimEnd()))}\n`) },
  );
  // The hook does not see the fields of a child. Children inherit this method.
  // oxlint-disable-next-line typescript/unbound-method -- called with `this` below
  const { child } = log;
  log.child = function (this: Logger, fields: object, ...options: never[]) {
    return child.call(this, toLoggable(fields) as object, ...options);
  } as typeof child;
  return log;
}

/** What a caller passed to a method of the logger, without what must not be logged. */
function loggableArguments([first, ...rest]: readonly unknown[]): readonly unknown[] {
  const others = rest.map((argument) => toLoggable(argument));
  if (!(first instanceof Error)) return [toLoggable(first), ...others];
  const err = toLoggable(first) as { readonly message: string };
  return [{ err }, ...(others.length === 0 ? [err.message] : others)];
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
