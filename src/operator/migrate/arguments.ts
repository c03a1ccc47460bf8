import { driverFlags } from '../../driver-config/read-config.ts';
import { isFields } from '../../runtime/json.ts';
import { type FlagTable, UsageError } from '../../runtime/flags.ts';
import { parseFlags, type ParseInput } from '../../runtime/parse-flags.ts';
import { idleFlags, retiredFlags } from '../../runtime/process-flags.ts';
import type { Container, Workload } from './provisioner.ts';

/** What becomes of the arguments of external-provisioner's container. */
export interface SortedArguments {
  readonly csiAddress: string;
  readonly isNodeDeployment: boolean;
  readonly hasElection: boolean;
  /** undefined: that of the workload. */
  readonly leaseNamespace: string | undefined;
  /** Keys of the driver's section of --driver-config, as texts. */
  readonly section: ReadonlyMap<string, readonly string[]>;
  /** Of the processes, for all drivers, as they were given. */
  readonly ofProcesses: readonly string[];
  /** As they were given, with the reason. */
  readonly withoutEffect: readonly string[];
}

/** Flags that are answered by where the parts are now. */
const BY_PLACE: Readonly<Record<string, string>> = {
  'csi-address': 'the gateway has it',
  'node-deployment': 'the gateways of the nodes are called',
  'leader-election': 'ingest always acquires the Lease',
  'leader-election-namespace': 'the section has it',
  'capacity-ownerref-level': 'the objects belong to the Deployment of jobs',
  'http-endpoint': 'each process has its own',
  'metrics-address': 'each process has its own',
  kubeconfig: 'each process has its own',
  master: 'each process has its own',
};

/** Sorts the arguments of the container.
 * @param known  flags of all processes of sutler
 * @throws UsageError for an argument that external-provisioner never had, a value that can't be
 *   read, and one that comes from a ConfigMap or Secret */
export function sortArguments(
  workload: Workload,
  container: Container,
  known: FlagTable,
): SortedArguments {
  const argv = expandedArguments(workload, container);
  const input: ParseInput = { argv, env: {}, idle: idleFlags, retired: retiredFlags };
  const parsed = parseFlags(known, input);
  if (parsed.kind !== 'run')
    throw new UsageError(`the container ${container.name} only prints its help or version`);
  const ofDriver = driverFlags(known);
  const section = new Map<string, readonly string[]>();
  const ofProcesses: string[] = [];
  const withoutEffect = parsed.warnings.map((warning) =>
    warning.replace('accepted and ignored: ', ''),
  );
  for (const [name, texts] of parsed.given) {
    const spelled = `--${name}=${texts.join(',')}`;
    const place = BY_PLACE[name];
    if (place !== undefined) withoutEffect.push(`${spelled}: ${place}`);
    else if (Object.hasOwn(ofDriver, name)) section.set(name, texts);
    else ofProcesses.push(spelled);
  }
  const isOn = (name: string): boolean =>
    /^(1|t|true)$/i.test(parsed.given.get(name)?.at(-1) ?? '');
  return {
    csiAddress: parsed.given.get('csi-address')?.at(-1) ?? '/run/csi/socket',
    isNodeDeployment: isOn('node-deployment'),
    hasElection: isOn('leader-election'),
    leaseNamespace: parsed.given.get('leader-election-namespace')?.at(-1) || undefined,
    section,
    ofProcesses,
    withoutEffect,
  };
}

/** @returns whether a value of the flag contains the text */
export function says(section: SortedArguments['section'], flag: string, text: string): boolean {
  return section.get(flag)?.some((each) => each.includes(text)) === true;
}

/** Flags whose value may stay open: what they say has no effect, or is of the processes. */
const MAY_STAY_OPEN = /^--?(http-endpoint|metrics-address|v|kubeconfig|master)\b/;

function expandedArguments(workload: Workload, container: Container): readonly string[] {
  const { command = [], args = [] } = container;
  return [...command.slice(1), ...args].map((arg) =>
    // $$(NAME) is $(NAME) itself, as the kubelet reads it.
    arg.replaceAll(/\$?\$\((\w+)\)/g, (spelled, name: string) => {
      if (spelled.startsWith('$$')) return spelled.slice(1);
      const value = valueOf(workload, container, name);
      if (value !== undefined) return value;
      if (MAY_STAY_OPEN.test(arg)) return spelled;
      throw new UsageError(
        `${arg}: the variable ${name} of the container ${container.name} has no value in the ` +
          'manifest (it comes from a ConfigMap, a Secret or the pod): write the value in its place',
      );
    }),
  );
}

/** @returns undefined where the manifest does not say it */
function valueOf(
  { metadata: { namespace = 'default' } }: Workload,
  { env = [] }: Container,
  name: string,
): string | undefined {
  const variable = env.findLast((each) => each.name === name);
  if (typeof variable?.['value'] === 'string') return variable['value'];
  const from = variable?.['valueFrom'];
  const field = isFields(from) && isFields(from['fieldRef']) ? from['fieldRef'] : undefined;
  return field?.['fieldPath'] === 'metadata.namespace' ? namespace : undefined;
}
