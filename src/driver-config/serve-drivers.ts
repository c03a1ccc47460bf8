import { checkGatewayFlags } from '../gateway-client/open-driver.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import { systemClock } from '../runtime/clock.ts';
import { type Flags, type FlagTable, UsageError } from '../runtime/flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { type WatchedFiles, watchFile } from '../runtime/watched-files.ts';
import { type DriverContext, DriverSet, type DriverSetOptions } from './driver-set.ts';
import type { driverConfigFlags } from './flags.ts';
import { type DriverConfig, isConfig, readDriverConfig } from './read-config.ts';

export type WatchedDriverConfig = WatchedFiles<DriverConfig>;

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
  const { closers, health } = context;
  const config = await watchDriverConfig(context, check);
  closers.add('driver config', () => config.close());
  health.note('driver-config', () => {
    if (config.trouble !== undefined)
      return `${config.trouble}; the last good content stays in use`;
    if (config.current.size > 0) return undefined;
    return `${pathOf(context)} names no driver: there is nothing to do`;
  });
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
  const config = await watchDriverConfig(context, () => undefined);
  config.close();
  const section = config.current.get(driver);
  if (section !== undefined) return { ...context.flags, ...section.values };
  const names = [...config.current.keys()].join(', ');
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

const PERIOD_MS = 500;
/** Faults that a line shows. */
const SHOWN = 5;

/** Reads the file at once, and then twice a second.
 * @throws UsageError if the file can't be used at the start */
function watchDriverConfig<T extends Table>(
  context: ProcessContext<T>,
  check: Check<T>,
): Promise<WatchedDriverConfig> {
  const { flags, env, known, log } = context;
  const parse = async (text: string): Promise<DriverConfig> => {
    const result = await readDriverConfig(text, {
      known,
      defaults: flags,
      check(values) {
        // The reader adds values of the section to those of the process, by the same table.
        const ofDriver = values as Flags<T>;
        checkGatewayFlags(ofDriver as unknown as Flags<typeof gatewayClientFlags>);
        check({ flags: ofDriver, env });
      },
    });
    if (isConfig(result)) return result;
    const lines = result.slice(0, SHOWN).map(({ line, what }) => `line ${line}: ${what}`);
    const more = result.length - lines.length;
    throw new Error([...lines, ...(more > 0 ? [`and ${more} more`] : [])].join('; '));
  };
  return watchFile({
    path: pathOf(context),
    flag: 'driver-config',
    parse,
    clock: systemClock,
    log,
    intervalMs: PERIOD_MS,
    needsTwoLooks: true,
  });
}

function pathOf<T extends Table>({ flags }: ProcessContext<T>): string {
  return (flags as unknown as Flags<typeof driverConfigFlags>).driverConfig;
}
