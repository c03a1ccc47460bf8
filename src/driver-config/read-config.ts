import { readFile } from 'node:fs/promises';
import { leaseName } from '../election/lease.ts';
import type { gatewayClientFlags } from '../gateway-client/flags.ts';
import { checkGatewayFlags } from '../gateway-client/open-driver.ts';
import { messageOf } from '../runtime/error-message.ts';
import {
  flagKey,
  type Flags,
  type FlagSpec,
  type FlagTable,
  parseValue,
  UsageError,
} from '../runtime/flags.ts';
import { isFields } from '../runtime/json.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { driverConfigFlags } from './flags.ts';

/** The flags of each driver, by its name: its section's, and for the rest the process's. */
export type DriverConfig<T extends FlagTable> = ReadonlyMap<string, Flags<T>>;

type Table = FlagTable & typeof driverConfigFlags & typeof gatewayClientFlags;

/** Flags that every section is checked for. Some processes lack the one for the Lease's namespace.
 */
type SharedFlags = Flags<typeof gatewayClientFlags> & {
  readonly leaderElectionNamespace?: string;
};

/** Refuses flags of one driver that exclude each other.
 * @throws UsageError */
type Check<T extends FlagTable> = (context: Pick<ProcessContext<T>, 'flags' | 'env'>) => void;

/** Reads --driver-config.
 * @throws UsageError that names driver, key and fix */
export async function readDriverConfig<T extends Table>(
  context: Pick<ProcessContext<T>, 'flags' | 'env' | 'known'>,
  check: Check<T>,
): Promise<DriverConfig<T>> {
  const path = pathOf(context.flags);
  try {
    return await parseDriverConfig(await readFile(path, 'utf8'), context, check);
  } catch (cause) {
    throw new UsageError(`--driver-config ${path}: ${messageOf(cause)}`, { cause });
  }
}

/** Returns the flags of a command for one driver: with --driver-config, those of its section.
 * @throws UsageError if the file can't be used or does not name the driver */
export async function flagsOfDriver<T extends Table>(
  context: ProcessContext<T>,
  driver: string,
): Promise<Flags<T>> {
  const path = pathOf(context.flags);
  if (path === '') return context.flags;
  if (driver === '')
    throw new UsageError('--driver-name is missing: choose a driver of --driver-config');
  const config = await readDriverConfig(context, () => undefined);
  const found = config.get(driver);
  if (found !== undefined) return found;
  const names = [...config.keys()].join(', ');
  throw new UsageError(`--driver-name: ${path} names no driver ${driver}; it names ${names}`);
}

function pathOf<T extends Table>(flags: Flags<T>): string {
  // Table contains it, which Flags<T> does not show for a generic T.
  return (flags as unknown as Flags<typeof driverConfigFlags>).driverConfig;
}

/** The flags that a section may have. */
export function driverFlags(known: FlagTable): FlagTable {
  return Object.fromEntries(Object.entries(known).filter(([, spec]) => spec.perDriver === true));
}

/** The form that the CSI specification requires. */
const DRIVER_NAME = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$/;
const SHAPE = 'write "drivers:", and below it the name of each driver with its keys';
const OWN_GATEWAYS = 'each driver has gateways of its own';
/** Each section names its own gateways; the process's flags are no defaults for these. */
const NO_GATEWAYS = { gateway: [], gatewayService: '' };

/** Reads the text of the file.
 * @param o.known  flags of all processes
 * @param o.flags  flags of this process
 * @throws Error that names driver, key and fix */
export async function parseDriverConfig<T extends Table>(
  text: string,
  o: Pick<ProcessContext<T>, 'flags' | 'env' | 'known'>,
  check: Check<T>,
): Promise<DriverConfig<T>> {
  const config = new Map<string, Flags<T>>();
  const owners = new Map<string, string>();
  for (const [name, section] of Object.entries(sectionsOf(await parseYaml(text))))
    try {
      if (!DRIVER_NAME.test(name))
        throw new Error('write the name that GetPluginInfo returns, like ebs.csi.aws.com');
      if (!isFields(section)) throw new Error('it has no keys; write "gateway: ADDRESS" below it');
      const values = { ...o.flags, ...NO_GATEWAYS, ...readSection(section, o.known) };
      // Table contains them, which Flags<T> does not show for a generic T.
      const shared = values as unknown as SharedFlags;
      refuseRepeats(name, shared, owners);
      checkGatewayFlags(shared);
      check({ flags: values, env: o.env });
      config.set(name, values);
    } catch (cause) {
      // In a section, keys have no dashes.
      const message = messageOf(cause).replaceAll(/--(?=[a-z])/g, '');
      throw new Error(`driver ${name}: ${message}`, { cause });
    }
  return config;
}

/** @returns texts, lists and mappings; each flag reads its own text */
async function parseYaml(text: string): Promise<unknown> {
  // A process that serves one driver does not load this package. It is CommonJS: in the bundle,
  // `default` is its only export.
  const { default: yaml } = await import('yaml');
  const document = yaml.parseDocument(text, { schema: 'failsafe' });
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined) throw new Error(problem.message.split('\n')[0]?.replace(/:$/, ''));
  return document.toJS();
}

function sectionsOf(root: unknown): Readonly<Record<string, unknown>> {
  const { drivers, ...others } = isFields(root) ? root : {};
  const [key] = Object.keys(others);
  if (key !== undefined) throw new Error(`unknown key ${JSON.stringify(key)}; ${SHAPE}`);
  // `drivers: {}` is valid; an empty value is more likely a half-done edit.
  if (!isFields(drivers)) throw new Error(`there are no drivers; ${SHAPE}`);
  return drivers;
}

function readSection(
  section: Readonly<Record<string, unknown>>,
  known: FlagTable,
): Record<string, unknown> {
  const table = driverFlags(known);
  const values: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(section)) {
    const spec = Object.hasOwn(table, key) ? table[key] : undefined;
    if (spec === undefined) throw new Error(describeUnknown(key, known));
    try {
      values[flagKey(key, spec)] = parseValue(spec, textsOf(spec, value));
    } catch (cause) {
      throw new Error(`${key}: ${messageOf(cause)}`, { cause });
    }
  }
  return values;
}

function describeUnknown(key: string, known: FlagTable): string {
  if (Object.hasOwn(known, key))
    return `${key} is not a key of a driver; give it to the process, as a flag`;
  return `unknown key ${JSON.stringify(key)}; docs/flags.md lists all keys`;
}

/** The form of a value that is not a text, by the flag's type. */
const SHAPES: Readonly<Record<string, string>> = {
  strings: 'one value or a list',
  labels: 'a mapping of texts',
};

/** Returns the texts that the flag would get on the command line.
 * @throws UsageError if the value's form is not the flag's */
function textsOf({ type }: FlagSpec, value: unknown): readonly string[] {
  const text = value ?? '';
  if (text === '' && type !== 'string' && !(type in SHAPES))
    throw new UsageError('the value is missing');
  if (typeof text === 'string') return [text];
  if (type === 'strings' && areTexts(text)) return text;
  if (type === 'labels' && isFields(text) && areTexts(Object.values(text)))
    return Object.entries(text).map(([key, label]) => `${key}:${String(label)}`);
  throw new UsageError(`write ${SHAPES[type] ?? 'one value'}`);
}

function areTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

/** Refuses a driver whose gateway or Lease another driver uses.
 * @param owners  the driver of each gateway and Lease so far */
function refuseRepeats(name: string, flags: SharedFlags, owners: Map<string, string>): void {
  const { gateway, gatewayService, leaderElectionNamespace: namespace = '' } = flags;
  const lease = namespace === '' ? leaseName(name) : `${namespace}/${leaseName(name)}`;
  const remedies: Readonly<Record<string, string>> = {
    ...(gatewayService === '' ? {} : { [`gateway-service ${gatewayService}`]: OWN_GATEWAYS }),
    ...Object.fromEntries(gateway.map((each) => [`gateway ${each}`, OWN_GATEWAYS])),
    [`the Lease ${lease}`]: 'give one of them another leader-election-namespace',
  };
  for (const [thing, remedy] of Object.entries(remedies)) {
    const owner = owners.get(thing);
    if (owner !== undefined) throw new Error(`${thing} is also used by driver ${owner}; ${remedy}`);
    owners.set(thing, name);
  }
}
