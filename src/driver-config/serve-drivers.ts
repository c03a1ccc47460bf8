import { readFile } from 'node:fs/promises';
import { checkGatewayFlags } from '../gateway-client/open-driver.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { type Flags, type FlagTable, UsageError } from '../runtime/flags.ts';
import type { Logger } from '../runtime/log.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { type WatchedFiles, watchFile } from '../runtime/watched-files.ts';
import { type DriverContext, DriverSet, type DriverSetOptions } from './driver-set.ts';
import type { driverConfigFlags } from './flags.ts';
import { type DriverConfig, isConfig, readDriverConfig } from './read-config.ts';
import type { Fault } from './yaml-tree.ts';

type Table = FlagTable & typeof driverConfigFlags & typeof gatewayClientFlags;

/** Refuses flags of one driver that can't be used together.
 * @throws UsageError */
type Check<T extends FlagTable> = (context: Pick<DriverContext<T>, 'flags' | 'env'>) => void;

/** Reads --driver-config and watches it until the process closes.
 * @throws UsageError if it can't be used */
export async function openDriverConfig<T extends Table>(
  context: ProcessContext<T>,
  check: Check<T>,
): Promise<WatchedDriverConfig> {
  const { closers, health, log } = context;
  const path = pathOf(context);
  const config = await watchDriverConfig({
    path,
    read: (text) => read(context, text, check),
    clock: systemClock,
    log,
  });
  closers.add('driver config', () => config.close());
  health.note('driver-config', () =>
    config.trouble === undefined
      ? describeEmpty(path, config.current)
      : `${config.trouble}; the last good content stays in use`,
  );
  return config;
}

/** The flags of a command that looks at one driver: those of the section, where --driver-config is
 * given.
 * @throws UsageError if the file can't be used or does not name the driver */
export async function flagsOfDriver<T extends Table>(
  context: ProcessContext<T>,
  driver: string,
): Promise<Flags<T>> {
  const path = pathOf(context);
  if (path === '') return context.flags;
  if (driver === '')
    throw new UsageError('--driver-name is missing: choose a driver of --driver-config');
  const config = await readFileOnce(path, (text) => read(context, text, () => undefined));
  const section = config.get(driver);
  if (section !== undefined) return { ...context.flags, ...section.values };
  const names = [...config.keys()].join(', ');
  throw new UsageError(`--driver-name: ${path} names no driver ${driver}; it names ${names}`);
}

/** Serves the drivers of the config, as it is now and as it becomes, until the process closes. */
export function serveDrivers<T extends FlagTable>(
  config: WatchedDriverConfig,
  options: DriverSetOptions<T>,
): DriverSet<T> {
  const drivers = new DriverSet(options);
  options.context.closers.add('drivers', () => drivers.close());
  config.onChange((next) => drivers.apply(next));
  drivers.apply(config.current);
  return drivers;
}

async function read<T extends Table>(
  { flags, env, known }: ProcessContext<T>,
  text: string,
  check: Check<T>,
): ReturnType<typeof readDriverConfig> {
  return readDriverConfig(text, {
    known,
    defaults: flags,
    check(values) {
      // The reader adds values of the section to those of the process, by the same table.
      const ofDriver = values as Flags<T>;
      checkGatewayFlags(ofDriver as unknown as Flags<typeof gatewayClientFlags>);
      check({ flags: ofDriver, env });
    },
  });
}

function pathOf<T extends Table>({ flags }: ProcessContext<T>): string {
  return (flags as unknown as Flags<typeof driverConfigFlags>).driverConfig;
}

function describeEmpty(path: string, config: DriverConfig): string | undefined {
  return config.size === 0 ? `${path} names no driver: there is nothing to do` : undefined;
}

export type WatchedDriverConfig = WatchedFiles<DriverConfig>;

/** What a text says, or what is wrong with it. */
type Read = (text: string) => Promise<DriverConfig | readonly Fault[]>;

const PERIOD_MS = 500;
/** As much as a ConfigMap can hold. */
const MAX_LENGTH = 1024 * 1024;
/** Faults that a line shows. */
const SHOWN = 5;

/** Reads the file at once, and then twice a second.
 * @throws UsageError if the file can't be used at the start */
export function watchDriverConfig(o: {
  readonly path: string;
  readonly read: Read;
  readonly clock: Clock;
  readonly log: Logger;
  readonly periodMs?: number;
}): Promise<WatchedDriverConfig> {
  const { path, read, clock, log, periodMs: intervalMs = PERIOD_MS } = o;
  const parse = (text: string): Promise<DriverConfig> => judge(text, read);
  return watchFile({
    path,
    flag: 'driver-config',
    parse,
    clock,
    log,
    intervalMs,
    needsTwoLooks: true,
  });
}

/** Reads the file for a command that does not watch it.
 * @throws UsageError if it can't be used */
async function readFileOnce(path: string, read: Read): Promise<DriverConfig> {
  try {
    return await judge(await readFile(path, 'utf8'), read);
  } catch (cause) {
    throw new UsageError(`--driver-config ${path}: ${messageOf(cause)}`, { cause });
  }
}

/** @throws Error that says why it can't be used */
async function judge(text: string, read: Read): Promise<DriverConfig> {
  if (text.length > MAX_LENGTH) throw new Error('it is longer than 1 MiB');
  const result = await read(text);
  if (isConfig(result)) return result;
  const lines = result.slice(0, SHOWN).map(({ line, what }) => `line ${line}: ${what}`);
  const more = result.length - lines.length;
  throw new Error([...lines, ...(more > 0 ? [`and ${more} more`] : [])].join('; '));
}
