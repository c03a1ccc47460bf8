import { pino, type Logger as PinoLogger } from 'pino';

/** A structured log: constant messages with fields. Levels follow klog: info and above always,
 * debug from -v=4, trace from -v=6. */
export type Logger = PinoLogger;

export interface LogOptions {
  readonly name: string;
  /** The value of -v. */
  readonly verbosity: number;
  readonly format: 'text' | 'json';
  /** Receives whole lines, with the newline. */
  readonly write: (line: string) => void;
}

/** Creates the logger of a process. All parts receive it, or a child of it, as an argument. */
export function createLogger(options: LogOptions): Logger {
  const level = options.verbosity >= 6 ? 'trace' : options.verbosity >= 4 ? 'debug' : 'info';
  const write =
    options.format === 'json' ? options.write : (line: string): void => options.write(toText(line));
  return pino(
    { level, base: { process: options.name }, timestamp: pino.stdTimeFunctions.isoTime },
    { write },
  );
}

/** Writes nothing; for tests. */
export const silentLog: Logger = pino({ level: 'silent' });

const LEVELS: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  30: 'INFO',
  40: 'WARN',
  50: 'ERROR',
  60: 'FATAL',
};

function toText(line: string): string {
  const { level, time, process, msg, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const rest = Object.entries(fields).map(([key, value]) => ` ${key}=${fieldText(value)}`);
  const name = LEVELS[Number(level)] ?? String(level);
  const message = typeof msg === 'string' ? msg : '';
  return `${String(time)} ${name} ${String(process)}: ${message}${rest.join('')}\n`;
}

function fieldText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@-]+$/.test(value)) return value;
  if (typeof value === 'object' && value !== null && 'stack' in value && 'message' in value)
    return JSON.stringify(value.message);
  return JSON.stringify(value) ?? '';
}
