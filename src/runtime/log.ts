import { pino, type Logger as PinoLogger } from 'pino';

/** Structured log: a constant message plus fields. info and above always, debug from -v=4, trace
 * from -v=6 (klog's habit). */
export type Logger = PinoLogger;

export interface LogOptions {
  readonly name: string;
  /** klog's -v. */
  readonly verbosity: number;
  readonly format: 'text' | 'json';
  /** Receives whole lines, newline included. */
  readonly write: (line: string) => void;
}

/** The one logger of a process; everything else gets it, or a child of it, as an argument. */
export function createLogger(options: LogOptions): Logger {
  const level = options.verbosity >= 6 ? 'trace' : options.verbosity >= 4 ? 'debug' : 'info';
  const write =
    options.format === 'json' ? options.write : (line: string): void => options.write(toText(line));
  return pino(
    { level, base: { process: options.name }, timestamp: pino.stdTimeFunctions.isoTime },
    { write },
  );
}

/** Says nothing; for tests. */
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
  return `${String(time)} ${LEVELS[Number(level)] ?? String(level)} ${String(process)}: ${typeof msg === 'string' ? msg : ''}${rest.join('')}\n`;
}

function fieldText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@-]+$/.test(value)) return value;
  if (typeof value === 'object' && value !== null && 'stack' in value && 'message' in value)
    return JSON.stringify(value.message);
  return JSON.stringify(value) ?? '';
}
