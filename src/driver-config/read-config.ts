import { leaseName } from '../election/lease.ts';
import {
  flagKey,
  type FlagSpec,
  type FlagTable,
  parseValue,
  UsageError,
  ValueError,
} from '../runtime/flags.ts';
import { type Fault, readYaml, type YamlEntry, type YamlNode } from './yaml-tree.ts';

/** Values of flags, by their names in Flags. */
export type FlagValues = Readonly<Record<string, unknown>>;

/** One driver of the file. */
export interface DriverSection {
  readonly name: string;
  /** The values of its keys, and no gateway where it names none. */
  readonly values: FlagValues;
}

/** The sections by the name of their driver. */
export type DriverConfig = ReadonlyMap<string, DriverSection>;

export interface ReadOptions {
  /** Flags of all processes. A section may have those that are per driver. */
  readonly known: FlagTable;
  /** What the process's own flags say for drivers whose section says nothing. */
  readonly defaults: FlagValues;
  /** Refuses values that can't be used together.
   * @throws UsageError */
  readonly check: (values: FlagValues) => void;
}

/** Whether the file could be read. */
export function isConfig(result: DriverConfig | readonly Fault[]): result is DriverConfig {
  return result instanceof Map;
}

/** The flags that a section may have. */
export function driverFlags(known: FlagTable): FlagTable {
  return Object.fromEntries(Object.entries(known).filter(([, spec]) => spec.perDriver === true));
}

/** A section with what is needed to say what is wrong with it. */
interface Draft extends DriverSection {
  readonly line: number;
  /** By flag. */
  readonly lines: ReadonlyMap<string, number>;
  /** Of this driver in all: those of the process and its own. */
  readonly all: FlagValues;
}

/** Reads the text of the file.
 * @returns all faults, where there are any; each names its line and the fix */
export async function readDriverConfig(
  text: string,
  options: ReadOptions,
): Promise<DriverConfig | readonly Fault[]> {
  if (text.length > MAX_LENGTH) return [{ line: 1, what: 'the file is longer than 1 MiB' }];
  const root = await readYaml(text);
  if (root !== undefined && 'what' in root) return [root];
  return new ConfigReader(options).read(root);
}

/** As much as a ConfigMap can hold. */
const MAX_LENGTH = 1024 * 1024;
/** As the CSI specification restricts it. */
const DRIVER_NAME = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$/;
const SHAPE = 'write "drivers:", and below it the name of each driver with its keys';

class ConfigReader {
  readonly #options: ReadOptions;
  readonly #table: FlagTable;
  readonly #faults: Fault[] = [];

  constructor(options: ReadOptions) {
    this.#options = options;
    this.#table = driverFlags(options.known);
  }

  read(root: YamlNode | undefined): DriverConfig | readonly Fault[] {
    const drafts = this.#sections(root).flatMap((entry) => this.#readSection(entry) ?? []);
    this.#refuseRepeats(drafts);
    for (const draft of drafts) this.#check(draft);
    if (this.#faults.length > 0) return this.#faults.sort((a, b) => a.line - b.line);
    return new Map(drafts.map(({ name, values }) => [name, { name, values }]));
  }

  #fault(line: number, what: string): void {
    this.#faults.push({ line, what });
  }

  #sections(root: YamlNode | undefined): readonly YamlEntry[] {
    const entries = root?.kind === 'mapping' ? root.entries : [];
    const [found, ...more] = entries.filter(({ key }) => key === 'drivers');
    for (const { key, line } of entries)
      if (key !== 'drivers') this.#fault(line, `unknown key ${quote(key)}; ${SHAPE}`);
    for (const { line } of more)
      this.#fault(line, 'drivers is there twice; move its sections below the first one');
    if (found?.value.kind === 'mapping') return found.value.entries;
    // `drivers: {}` is a mapping; an empty value is more likely half of an edit.
    this.#fault(found?.line ?? 1, `there are no drivers; ${SHAPE}`);
    return [];
  }

  #readSection({ key: name, line, value }: YamlEntry): Draft | undefined {
    if (!DRIVER_NAME.test(name)) {
      const fix = 'write it as GetPluginInfo answers it, like ebs.csi.aws.com';
      this.#fault(line, `${quote(name)} can't be a driver's name; ${fix}`);
      return undefined;
    }
    if (value.kind !== 'mapping') {
      this.#fault(line, `driver ${name}: it has no keys; write "gateway: ADDRESS" below it`);
      return undefined;
    }
    const values: Record<string, unknown> = { ...NO_GATEWAYS };
    const lines = new Map<string, number>();
    for (const entry of value.entries) {
      const before = lines.get(entry.key);
      if (before !== undefined)
        this.#fault(
          entry.line,
          `driver ${name}: ${entry.key} is also on line ${before}; remove one of them`,
        );
      lines.set(entry.key, entry.line);
      this.#readKey(name, entry, values);
    }
    return { name, line, values, lines, all: { ...this.#options.defaults, ...values } };
  }

  #readKey(driver: string, { key, line, value }: YamlEntry, values: Record<string, unknown>): void {
    const spec = Object.hasOwn(this.#table, key) ? this.#table[key] : undefined;
    if (spec === undefined) return this.#fault(line, `driver ${driver}: ${this.#unknown(key)}`);
    try {
      values[flagKey(key, spec)] = parseValue(spec, textsOf(spec, value));
    } catch (error) {
      if (!(error instanceof ValueError)) throw error;
      this.#fault(line, `driver ${driver}: ${key}: ${error.message}`);
    }
  }

  #unknown(key: string): string {
    if (Object.hasOwn(this.#options.known, key))
      return `${key} is not a driver's own; give it to the process, as --${key}`;
    return `unknown key ${quote(key)}; docs/flags.md lists all keys`;
  }

  /** Refuses two sections of one name, of one gateway, or of one Lease. */
  #refuseRepeats(drafts: readonly Draft[]): void {
    const seen = new Map<string, Draft>();
    const refuse = (draft: Draft, thing: string, key: string, fix: string): void => {
      const first = seen.get(thing);
      if (first === undefined) seen.set(thing, draft);
      else if (first !== draft && (key === '' || first.name !== draft.name))
        this.#fault(
          draft.lines.get(key) ?? draft.line,
          `driver ${draft.name}: ${thing} is also that of driver ${first.name} ` +
            `(line ${first.lines.get(key) ?? first.line}); ${fix}`,
        );
    };
    for (const draft of drafts) {
      refuse(draft, `the name ${draft.name}`, '', 'make one section of both');
      for (const address of addressesOf(draft.all))
        refuse(draft, address, address.split(' ')[0] ?? '', 'each driver has gateways of its own');
      const namespace = textOf(draft.all, 'leaderElectionNamespace');
      refuse(
        draft,
        `the Lease ${namespace === '' ? '' : `${namespace}/`}${leaseName(draft.name)}`,
        'leader-election-namespace',
        'give one of them another leader-election-namespace',
      );
    }
  }

  #check({ name, line, lines, all }: Draft): void {
    if (addressesOf(all).length === 0)
      return this.#fault(
        line,
        `driver ${name}: gateway is missing; write "gateway-service: NAMESPACE/NAME", ` +
          '"gateway: dns:///HOST:PORT" or "gateway: unix:///PATH"',
      );
    try {
      this.#options.check(all);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      const flag = /--([a-z][a-z-]*)/.exec(error.message)?.[1] ?? '';
      const what = error.message.replaceAll(/--(?=[a-z])/g, '');
      this.#fault(lines.get(flag) ?? line, `driver ${name}: ${what}`);
    }
  }
}

/** What each section has of its own: flags of the process are no defaults for these. */
const NO_GATEWAYS = { gateway: [], gatewayService: '' };

/** The gateways of a driver, each as "KEY ADDRESS". */
function addressesOf(all: FlagValues): readonly string[] {
  const { gateway } = all;
  const addresses: readonly unknown[] = Array.isArray(gateway) ? gateway : [];
  const service = textOf(all, 'gatewayService');
  return [
    ...(service === '' ? [] : [`gateway-service ${service}`]),
    ...addresses.map((each) => `gateway ${String(each)}`),
  ];
}

function textOf(all: FlagValues, key: string): string {
  const value = all[key];
  return typeof value === 'string' ? value : '';
}

/** The texts that the flag would be given.
 * @throws ValueError where the value has another shape than the flag */
function textsOf(spec: FlagSpec, value: YamlNode): readonly string[] {
  if (value.kind === 'text') return [checkText(spec, value.text)];
  if (value.kind === 'list' && spec.type === 'strings') return value.items.map(itemText);
  if (value.kind === 'mapping' && spec.type === 'labels')
    return value.entries.map(({ key, value: label }) => `${key}:${itemText(label)}`);
  const wanted = { strings: 'one value or a list', labels: 'a mapping of texts' } as const;
  throw new ValueError(
    `it is a ${value.kind}; write ${spec.type in wanted ? wanted[spec.type as 'labels'] : 'one value'}`,
  );
}

/** @throws ValueError for an empty value of a flag that needs one */
function checkText(spec: FlagSpec, text: string): string {
  const mayBeEmpty = spec.type === 'string' || spec.type === 'strings' || spec.type === 'labels';
  if (text === '' && !mayBeEmpty) throw new ValueError('the value is missing');
  return text;
}

function itemText(node: YamlNode): string {
  if (node.kind === 'text') return node.text;
  throw new ValueError(`line ${node.line} is a ${node.kind}; write a text`);
}

function quote(text: string): string {
  return JSON.stringify(text);
}
