import { isFields } from '../../runtime/json.ts';
import { UsageError } from '../../runtime/flags.ts';

/* Finds external-provisioner's container in the manifests of a driver. Pure. What can't be used is
 * refused in one sentence that says what to do. */

/** Fields of an object of which only some are read; the others are kept as they are. */
export type Fields = Readonly<Record<string, unknown>>;

/** The workload of a driver. */
export interface Workload {
  readonly apiVersion: string;
  readonly kind: 'Deployment' | 'StatefulSet' | 'DaemonSet';
  readonly metadata: Fields & { readonly name: string; readonly namespace?: string };
  readonly spec: Fields & {
    readonly template: Fields & { readonly metadata?: Fields; readonly spec: PodSpec };
  };
}

export interface PodSpec extends Fields {
  readonly containers: readonly Container[];
  readonly volumes?: readonly (Fields & { readonly name: string })[];
  readonly securityContext?: Fields;
  readonly terminationGracePeriodSeconds?: number;
}

export interface Container extends Fields {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly (Fields & { readonly name: string })[];
  readonly ports?: readonly (Fields & { readonly containerPort: number })[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
  readonly securityContext?: Fields;
}

export interface Provisioner {
  readonly workload: Workload;
  readonly container: Container;
  /** sutler serves the driver: the container is the gateway, and external-provisioner's is gone. */
  readonly isServed: boolean;
  /** Of the CSIDriver objects beside it. */
  readonly driverNames: readonly string[];
}

const KINDS: ReadonlySet<unknown> = new Set(['Deployment', 'StatefulSet', 'DaemonSet']);
/** Last part of the image's name, as upstream and those who build it themselves call it. */
const IMAGE = /(^|\/)[a-z.-]*(csi|external)-provisioner$/;
const SUTLER = /(^|\/)sutler$/;

/** Finds the one container of external-provisioner in the objects.
 * @param maySeeServed  without one, the gateway in its place will do
 * @throws UsageError where there is none, or more than one */
export function findProvisioner(objects: readonly unknown[], maySeeServed = false): Provisioner {
  const all = objects.flatMap(itemsOf);
  const workloads = all.filter(isWorkload);
  if (workloads.length === 0)
    throw new UsageError(
      'there is no Deployment, StatefulSet or DaemonSet in it: give the driver’s controller',
    );
  const found = workloads.flatMap((workload) =>
    workload.spec.template.spec.containers
      .filter(isProvisioner)
      .map((container) => ({ workload, container, isServed: false })),
  );
  if (found.length === 0 && maySeeServed)
    for (const workload of workloads) {
      const container = workload.spec.template.spec.containers.find(isGateway);
      if (container !== undefined) found.push({ workload, container, isServed: true });
    }
  const [only, ...others] = found;
  if (only === undefined) throw new UsageError(whyNone(workloads));
  if (others.length > 0) {
    const names = found.map(({ workload, container }) => `${titleOf(workload)}/${container.name}`);
    throw new UsageError(
      `there are ${found.length} containers of external-provisioner (${names.join(', ')}): ` +
        'give the manifest of one of these workloads, with one of them',
    );
  }
  if (!only.isServed) refuseServed(only.workload);
  const driverNames = all.flatMap((each) =>
    each['kind'] === 'CSIDriver' && isFields(each['metadata'])
      ? String(each['metadata']['name'])
      : [],
  );
  return { ...only, driverNames };
}

/** By its image, or its program in an image that has several. sutler in its place, which has flags
 * only, is one too. */
function isProvisioner({ image, command, args = [] }: Container): boolean {
  const name = imageName(image);
  const isInItsPlace = SUTLER.test(name) && !command && args[0]?.startsWith('-') !== false;
  return IMAGE.test(name) || IMAGE.test(command?.[0] ?? '') || isInItsPlace;
}

export function isSutler({ image }: Container): boolean {
  return SUTLER.test(imageName(image));
}

/** As `sutler migrate` writes it. */
function isGateway(container: Container): boolean {
  return container.name === 'csi-gateway' && isSutler(container);
}

/** "Deployment/ebs-csi-controller" */
function titleOf({ kind, metadata }: Workload): string {
  return `${kind}/${metadata.name}`;
}

function itemsOf(object: unknown): readonly Fields[] {
  if (!isFields(object)) return [];
  const items = object['items'];
  return Array.isArray(items) ? items.flatMap(itemsOf) : [object];
}

function isWorkload(object: Fields): object is Workload & Fields {
  if (!KINDS.has(object['kind'])) return false;
  const { metadata, spec } = object;
  const template = isFields(spec) ? spec['template'] : undefined;
  const pod = isFields(template) ? template['spec'] : undefined;
  return isFields(metadata) && isFields(pod) && Array.isArray(pod['containers']);
}

/** Without registry's port, tag and digest. */
function imageName(image: string): string {
  return image.replace(/@.*$/, '').replace(/:[^/]*$/, '');
}

function whyNone(workloads: readonly Workload[]): string {
  const containers = workloads.flatMap((workload) => workload.spec.template.spec.containers);
  for (const workload of workloads) refuseServed(workload);
  const likely = containers.find(({ name }) => /provisioner/.test(name));
  const names = workloads.map(titleOf).join(', ');
  return likely === undefined
    ? `${names} has no container of external-provisioner`
    : `container ${likely.name} has the image ${likely.image}, which is not known to be ` +
        'external-provisioner: if it is one, change it to its own image first';
}

function refuseServed(workload: Workload): void {
  const served = workload.spec.template.spec.containers.find(
    (each) => isSutler(each) && !isProvisioner(each),
  );
  if (served !== undefined)
    throw new UsageError(
      `${titleOf(workload)} has sutler already, in the container ${served.name}; nothing is left to do`,
    );
}

/** Where the driver's socket is for the provisioner. */
export interface Socket {
  /** Absolute, in the container. */
  readonly path: string;
  readonly volume: string;
  readonly mountPath: string;
}

/** The volume that contains the socket of --csi-address.
 * @throws UsageError */
export function findSocket({ name, volumeMounts = [] }: Container, address: string): Socket {
  const path = address.replace(/^unix:(\/\/)?/, '');
  const [mount] = volumeMounts
    .filter(({ mountPath }) => path.startsWith(`${mountPath.replace(/\/+$/, '')}/`))
    .toSorted((a, b) => b.mountPath.length - a.mountPath.length);
  if (mount === undefined)
    throw new UsageError(
      `no volume of the container ${name} contains its socket ${path}: mount its folder there`,
    );
  return { path, volume: mount.name, mountPath: mount.mountPath };
}
