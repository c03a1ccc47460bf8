import { pino, type Logger as PinoLogger } from 'pino';
import { isFields, parseJson } from './json.ts';

/** A structured log: constant messages with fields. Levels follow klog: info and above always,
 * debug from -v=4, trace from -v=6. */
export type Logger = PinoLogger;

/** Creates the logger of a process. All parts receive it, or a child of it, as an argument.
 * @param o.verbosity  the value of -v
 * @param o.write      receives whole lines, with the newline */
export function createLogger(o: {
  readonly name: string;
  readonly verbosity: number;
  readonly format: 'text' | 'json';
  readonly write: (line: string) => void;
}): Logger {
  const level = o.verbosity >= 6 ? 'trace' : o.verbosity >= 4 ? 'debug' : 'info';
  const write = o.format === 'json' ? o.write : (line: string): void => o.write(toText(line));
  return pino(
    { level, base: { process: o.name }, timestamp: pino.stdTimeFunctions.isoTime },
    { write },
  );
}

/** Writes nothing; for tests. */
export const silentLog: Logger = pino({ level: 'silent' });

function toText(line: string): string {
  const parsed = parseJson(line);
  if (!isFields(parsed)) return line;
  const { level, time, process, msg, ...fields } = parsed;
  const rest = Object.entries(fields).map(([key, value]) => ` ${key}=${fieldText(value)}`);
  const name = pino.levels.labels[Number(level)]?.toUpperCase() ?? String(level);
  const message = typeof msg === 'string' ? msg : '';
  return `${String(time)} ${name} ${String(process)}: ${message}${rest.join('')}\n`;
}

function fieldText(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@-]+$/.test(value)) return value;
  if (typeof value === 'object' && value !== null && 'stack' in value && 'message' in value)
    return JSON.stringify(value.message);
  return JSON.stringify(value) ?? '';
}
