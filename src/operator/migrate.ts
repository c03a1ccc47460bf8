import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import type * as yamlPackage from 'yaml';
import { leaseName } from '../election/lease.ts';
import { deployments, daemonSets, type Resource, statefulSets } from '../kube/resources.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import { isFields } from '../runtime/json.ts';
import type { Invocation } from '../runtime/process.ts';
import { version } from '../runtime/version.ts';
import { type Means, type Result, runCommand } from './command.ts';
import { migrate as command } from './flags.ts';
import { type SortedArguments, sortArguments } from './migrate/arguments.ts';
import { type Components, migrate, type Migrated } from './migrate/kustomization.ts';
import { type Fields, findProvisioner, findSocket, type Workload } from './migrate/provisioner.ts';

/** Writes the manifests by which a driver's external-provisioner is replaced. */
export function main(invocation: Invocation): Promise<void> {
  return runCommand(invocation, { name: 'migrate', ...command }, run);
}

type MigrateMeans = Means<typeof command.flags>;

async function run(means: MigrateMeans): Promise<Result> {
  const { flags, words, known } = means.context;
  const [source] = words;
  if (source === undefined)
    throw new UsageError(
      'name the workload (deployment/NAME), a file of manifests, or - for standard input',
    );
  const { default: yaml } = await import('yaml');
  const objects = WORKLOAD.test(source)
    ? [await readWorkload(means, source)]
    : parse(yaml, source, await readManifests(source));
  const provisioner = findProvisioner(objects);
  const { workload, container, driverNames } = provisioner;
  const sorted = sortArguments(workload, container, known);
  const driverName = chooseName(flags.driverName, driverNames);
  const plan = {
    provisioner: withNamespace(provisioner, flags.namespace),
    socket: findSocket(container, sorted.csiAddress),
    sorted,
    driverName,
    image: flags.image || `sutler:${version}`,
  };
  const migrated = migrate(plan, await readComponents(yaml, sorted.isNodeDeployment));
  await write(yaml, flags.out, driverName, migrated);
  return {
    status: 0,
    lines: report({ out: flags.out, driverName, sorted, migrated, provisioner: container.name }),
    json: {
      driver: driverName,
      out: flags.out,
      ...migrated,
      arguments: { ...sorted, section: Object.fromEntries(sorted.section) },
    },
  };
}

/* What is read. */

const WORKLOAD = /^(deployments?|statefulsets?|daemonsets?|deploy|sts|ds)\/([^/]+)$/i;

async function readWorkload({ context, openKube }: MigrateMeans, source: string): Promise<unknown> {
  const { flags } = context;
  const [, kind = '', name = ''] = WORKLOAD.exec(source) ?? [];
  const resource = resourceOf(kind.toLowerCase());
  const namespace = flags.namespace || 'default';
  const kube = await openKube(flags);
  const object = await kube.get<Fields>(resource, { namespace, name });
  if (object === undefined)
    throw new UsageError(
      `there is no ${resource.kind} ${name} in the namespace ${namespace}: name its namespace by -n`,
    );
  return { apiVersion: 'apps/v1', kind: resource.kind, ...object };
}

function resourceOf(kind: string): Resource {
  if (kind.startsWith('dep')) return deployments;
  return kind.startsWith('s') ? statefulSets : daemonSets;
}

async function readManifests(source: string): Promise<string> {
  try {
    return source === '-' ? await readAll(process.stdin) : await readFile(source, 'utf8');
  } catch (cause) {
    throw new UsageError(`${source} can't be read: ${messageOf(cause)}`, { cause });
  }
}

type Yaml = Pick<typeof yamlPackage, 'parseAllDocuments' | 'stringify'>;

/** Documents that can't be read are left out where others name a workload: manifests of drivers
 * have definitions of custom resources that only Kubernetes' own reader accepts. */
function parse(yaml: Yaml, source: string, text: string): readonly unknown[] {
  const documents = yaml.parseAllDocuments(text);
  if (!Array.isArray(documents)) return [];
  const readable = documents.filter(({ errors }) => errors.length === 0);
  const objects = readable.map((document) => document.toJS() as unknown);
  const [error] = documents.flatMap(({ errors }) => errors);
  if (error !== undefined && !objects.some(hasKind))
    throw new UsageError(`${source} is no YAML: ${error.message.split('\n')[0]}`, { cause: error });
  return objects;
}

function hasKind(object: unknown): boolean {
  return isFields(object) && typeof object['kind'] === 'string';
}

/** Below the folder of package.json, as in version.ts. */
const K8S = new URL('../../k8s/', import.meta.url);

async function readComponents(yaml: Yaml, isNodeDeployment: boolean): Promise<Components> {
  const read = async (path: string): Promise<readonly Fields[]> =>
    parse(yaml, path, await readFile(new URL(path, K8S), 'utf8')) as readonly Fields[];
  const folder = isNodeDeployment ? 'node-local' : 'gateway';
  const [sidecar] = await read(`${folder}/sidecar.yaml`);
  return {
    sidecar: sidecar as unknown as Workload,
    service: await read(`${folder}/service.yaml`),
    rbac: await read(`${folder}/rbac.yaml`),
    lease: await read('driver-lease/rbac.yaml'),
  };
}

function chooseName(given: string, found: readonly string[]): string {
  if (given !== '') return given;
  const [only, ...others] = found;
  if (only !== undefined && others.length === 0) return only;
  throw new UsageError(
    '--driver-name: name the driver, as "kubectl get csidrivers" shows it' +
      (found.length === 0 ? '' : ` (there are ${found.join(', ')})`),
  );
}

/** A rendered chart often names no namespace. */
function withNamespace<T extends { readonly workload: Workload }>(found: T, namespace: string): T {
  const { workload } = found;
  if (namespace === '' || workload.metadata.namespace !== undefined) return found;
  return { ...found, workload: { ...workload, metadata: { ...workload.metadata, namespace } } };
}

/* What is written. */

async function write(yaml: Yaml, out: string, driver: string, migrated: Migrated): Promise<void> {
  const { workload, original, beside, section } = migrated;
  const kustomization = (resources: readonly string[]) => ({
    apiVersion: 'kustomize.config.k8s.io/v1beta1',
    kind: 'Kustomization',
    resources,
  });
  const files: Readonly<Record<string, readonly unknown[]>> = {
    'kustomization.yaml': [kustomization(['workload.yaml', 'beside'])],
    'workload.yaml': [workload],
    'beside/kustomization.yaml': [kustomization(['objects.yaml'])],
    'beside/objects.yaml': beside,
    'back/kustomization.yaml': [kustomization(['workload.yaml'])],
    'back/workload.yaml': [original],
    'drivers.yaml': [{ drivers: { [driver]: section } }],
  };
  try {
    for (const folder of ['', 'beside', 'back'])
      await mkdir(join(out, folder), { recursive: true });
    for (const [path, documents] of Object.entries(files)) {
      const text = documents.map((each) => yaml.stringify(each, { aliasDuplicateObjects: false }));
      await writeFile(join(out, path), text.join('---\n'), { flag: 'wx' });
    }
  } catch (cause) {
    throw new UsageError(`--out: ${messageOf(cause)}; name a new folder`, { cause });
  }
}

/* What is told. */

function report(o: {
  readonly out: string;
  readonly driverName: string;
  readonly provisioner: string;
  readonly sorted: SortedArguments;
  readonly migrated: Migrated;
}): readonly string[] {
  const { out, driverName, sorted, migrated, provisioner } = o;
  const { namespace, service, ports, section, workload } = migrated;
  const names = `${service}.${namespace}.svc`;
  const list = (title: string, lines: readonly string[]): readonly string[] =>
    lines.length === 0 ? [] : ['', `${title}:`, ...lines.map((line) => `  ${line}`)];
  const user = workload.spec.template.spec.containers.at(-1)?.securityContext?.['runAsUser'];
  return [
    `${out}: ${workload.kind} ${namespace}/${workload.metadata.name} with the container csi-gateway ` +
      `in the place of ${provisioner}; nothing is applied yet`,
    `the gateway runs as user ${String(user)} and listens on the ports ${ports.gateway} and ${ports.http}`,
    ...list(
      `in the section of ${driverName} (${out}/drivers.yaml)`,
      Object.entries(section).map(([key, value]) => `${key}: ${String(value)}`),
    ),
    ...list('arguments of all drivers, for the containers of ingest and jobs', sorted.ofProcesses),
    ...list('arguments without effect', sorted.withoutEffect),
    ...list('next', [
      '1. install sutler (k8s/README.md), with the components ' +
        `${['drivers', ...neededComponents(sorted)].join(', ')}; add ${out}/drivers.yaml to its ConfigMap`,
      `2. make the Secret ${service}-tls in ${namespace} for the name ${names} (docs/gateway.md)`,
      `3. kubectl diff -k ${out}; kubectl apply -k ${out}`,
      `4. external-provisioner ends with its pod: sutler leads when the Lease ${namespace}/${leaseName(driverName)} is free`,
      `back: sutler drain --wait --driver-name=${driverName}; kubectl apply -k ${out}/back; ` +
        `kubectl delete -k ${out}/beside`,
    ]),
  ];
}

/** Components of k8s/ that the arguments ask for. */
function neededComponents({ section }: SortedArguments): readonly string[] {
  const says = (flag: string, text: string) =>
    section.get(flag)?.some((each) => each.includes(text)) === true;
  const isCapacity = says('enable-capacity', 'true');
  const isTopology = !says('feature-gates', 'Topology=false');
  return [...(isTopology ? ['topology'] : []), ...(isCapacity ? ['capacity'] : [])];
}
