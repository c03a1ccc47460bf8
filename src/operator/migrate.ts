import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import type * as yamlPackage from 'yaml';
import { leaseName } from '../election/lease.ts';
import type { KubeClient } from '../kube/client.ts';
import { deployments, daemonSets, type Resource, statefulSets } from '../kube/resources.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import { isFields } from '../runtime/json.ts';
import { version } from '../runtime/version.ts';
import { type Means, type Result, commandMain } from './command.ts';
import { migrate as command } from './flags.ts';
import { tellBack } from './migrate/back.ts';
import { check, type Subject } from './migrate/check.ts';
import type { Finding } from './migrate/findings.ts';
import { says, type SortedArguments, sortArguments } from './migrate/arguments.ts';
import { type Components, migrate, type Migrated } from './migrate/kustomization.ts';
import {
  type Container,
  type Fields,
  findProvisioner,
  findSocket,
  type Provisioner,
  type Workload,
} from './migrate/provisioner.ts';

/** Writes the manifests by which a driver's external-provisioner is replaced; or says what stands
 * in the way of that, or how it is undone. */
export const main = commandMain({ name: 'migrate', ...command }, run);

type MigrateMeans = Means<typeof command.flags>;

async function run(means: MigrateMeans): Promise<Result> {
  const { flags, words, known } = means.context;
  if (flags.check && flags.back) throw new UsageError('--check and --back: give one of them');
  const [source] = words;
  if (source === undefined)
    throw new UsageError(
      'name the workload (deployment/NAME), a file of manifests, or - for standard input; with ' +
        '--back, the folder that was written',
    );
  const { default: yaml } = await import('yaml');
  if (flags.back) return tellBack(means, source, (path, text) => parse(yaml, path, text));
  const kube = hasCluster(means, source) ? await means.openKube(flags) : undefined;
  const objects =
    kube !== undefined && WORKLOAD.test(source)
      ? [await readWorkload(kube, source, flags.namespace || 'default')]
      : parse(yaml, source, await readManifests(source));
  const provisioner = findProvisioner(objects, flags.check);
  const { workload, container, driverNames } = provisioner;
  const replaced = await readReplaced(yaml, flags.out, provisioner);
  const sorted = sortArguments(workload, replaced ?? withAddressAlone(container), known);
  const driverName = chooseName(flags.driverName, driverNames);
  const plan = {
    provisioner: withNamespace(provisioner, flags.namespace),
    socket: findSocket(container, sorted.csiAddress),
    sorted,
    driverName,
    image: flags.image || imageOf(provisioner),
  };
  const migrated = migrate(plan, await readComponents(yaml, sorted.isNodeDeployment));
  if (flags.check) {
    const roles = await readRoles(yaml, neededComponents(sorted));
    const users = (await readFile(new URL('redis/users.acl', K8S), 'utf8')).split('\n');
    const hasArguments = replaced !== undefined;
    const subject = { plan, migrated, out: flags.out, roles, users, hasArguments };
    return checkResult(subject, await check(means, kube, subject));
  }
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

/** Files need no cluster, except for what --check looks at there. */
function hasCluster({ context: { flags, env } }: MigrateMeans, source: string): boolean {
  const isNamed = flags.kubeconfig !== '' || flags.master !== '';
  return WORKLOAD.test(source) || (flags.check && (isNamed || 'KUBERNETES_SERVICE_HOST' in env));
}

async function readWorkload(kube: KubeClient, source: string, namespace: string): Promise<unknown> {
  const [, kind = '', name = ''] = WORKLOAD.exec(source) ?? [];
  const resource = resourceOf(kind.toLowerCase());
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

/** The container of external-provisioner; where the gateway has replaced it, that of the folder, if
 * it has that workload. */
async function readReplaced(
  yaml: Yaml,
  out: string,
  { workload: { kind, metadata }, container, isServed }: Provisioner,
): Promise<Container | undefined> {
  if (!isServed) return container;
  const path = join(out, 'back', 'workload.yaml');
  if (!existsSync(path)) return undefined;
  const found = findProvisioner(parse(yaml, path, await readManifests(path)));
  const isIt = found.workload.kind === kind && found.workload.metadata.name === metadata.name;
  return isIt ? found.container : undefined;
}

/** Of a gateway, what external-provisioner's container had too. */
function withAddressAlone({ args = [], ...container }: Container): Container {
  return { ...container, args: args.filter((arg) => arg.startsWith('--csi-address=')) };
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
  const hasKind = (each: unknown): boolean => isFields(each) && typeof each['kind'] === 'string';
  if (error !== undefined && !objects.some(hasKind))
    throw new UsageError(`${source} is no YAML: ${error.message.split('\n')[0]}`, { cause: error });
  return objects;
}

/** Below the folder of package.json, as in version.ts. */
const K8S = new URL('../../k8s/', import.meta.url);

async function readK8s(yaml: Yaml, path: string): Promise<readonly Fields[]> {
  return parse(yaml, path, await readFile(new URL(path, K8S), 'utf8')) as readonly Fields[];
}

/** The roles of ingest and jobs, by the folder that has them. */
async function readRoles(
  yaml: Yaml,
  components: readonly string[],
): Promise<ReadonlyMap<string, readonly Fields[]>> {
  const base = ['base/rbac-ingest.yaml', 'base/rbac-jobs.yaml'];
  const roles = new Map<string, readonly Fields[]>();
  roles.set('base', (await Promise.all(base.map((path) => readK8s(yaml, path)))).flat());
  for (const each of components) roles.set(each, await readK8s(yaml, `${each}/rbac.yaml`));
  return roles;
}

async function readComponents(yaml: Yaml, isNodeDeployment: boolean): Promise<Components> {
  const read = (path: string): Promise<readonly Fields[]> => readK8s(yaml, path);
  const folder = isNodeDeployment ? 'node-local' : 'gateway';
  const [sidecar] = await read(`${folder}/sidecar.yaml`);
  return {
    sidecar: sidecar as unknown as Workload,
    service: await read(`${folder}/service.yaml`),
    rbac: await read(`${folder}/rbac.yaml`),
    lease: await read('driver-lease/rbac.yaml'),
  };
}

/** Of the gateway: that which it has. */
function imageOf({ isServed, container }: Provisioner): string {
  return isServed ? container.image : `sutler:${version}`;
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
  const { namespace, leaseNamespace, service, ports, section, workload } = migrated;
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
        `${['drivers', ...neededComponents(sorted)].join(', ')} (topology if the driver has that, ` +
        `VOLUME_ACCESSIBILITY_CONSTRAINTS); add ${out}/drivers.yaml to its ConfigMap`,
      `2. make the Secret ${service}-tls in ${namespace} for the name ${names} (docs/gateway.md)`,
      '3. the same sutler migrate with --check says what still stands in the way',
      `4. ${applyCommands(out)}`,
      `5. sutler leads when the Lease ${leaseNamespace}/${leaseName(driverName)} is free, after the old pod`,
      `back: sutler migrate --back ${out}`,
    ]),
  ];
}

/** apply would leave external-provisioner's container in a workload that was made otherwise. */
function applyCommands(out: string): string {
  return (
    `kubectl apply -k ${out}/beside; kubectl diff -f ${out}/workload.yaml; ` +
    `kubectl replace --save-config -f ${out}/workload.yaml`
  );
}

function checkResult({ plan, migrated, out }: Subject, findings: readonly Finding[]): Result {
  const wrong = findings.filter(({ kind }) => kind === 'wrong');
  const title = `${migrated.workload.kind} ${migrated.namespace}/${migrated.workload.metadata.name}`;
  const { isServed } = plan.provisioner;
  const next = isServed
    ? `migrated; back: sutler migrate --back ${out}`
    : `next: ${applyCommands(out)} (${out} is what sutler migrate writes without --check)`;
  const what = isServed ? 'is amiss after' : 'stands in the way of';
  return {
    status: wrong.length === 0 ? 0 : 1,
    lines: [
      `${title}, driver ${plan.driverName}: ` +
        (wrong.length === 0
          ? `nothing ${what} the migration`
          : `this ${what} the migration; nothing was changed:`),
      ...wrong.map(({ text }) => `  ${text}`),
      ...findings.flatMap(({ kind, text }) => (kind === 'note' ? text : [])),
      wrong.length === 0 ? next : 'next: mend these, and run this again',
    ],
    json: { driver: plan.driverName, findings },
  };
}

/** Components of k8s/ that the arguments ask for. */
function neededComponents({ section }: SortedArguments): readonly string[] {
  const isCapacity = says(section, 'enable-capacity', 'true');
  const isTopology = !says(section, 'feature-gates', 'Topology=false');
  return [...(isTopology ? ['topology'] : []), ...(isCapacity ? ['capacity'] : [])];
}
