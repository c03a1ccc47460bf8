import type { SortedArguments } from './arguments.ts';
import type { Container, Fields, PodSpec, Provisioner, Socket, Workload } from './provisioner.ts';

/* Makes the manifests of a driver with the gateway in the place of external-provisioner. Pure.
 * What the gateway needs is that of k8s/gateway (k8s/node-local for a driver on each node),
 * fitted to the driver: its socket, user and free ports, and names that no other driver has. */

/** Objects of k8s/, as they are in its files. */
export interface Components {
  /** The workload that adds the gateway to a pod. */
  readonly sidecar: Workload;
  /** Service and NetworkPolicy of the gateways. */
  readonly service: readonly Fields[];
  /** The right to find them. */
  readonly rbac: readonly Fields[];
  /** The right to the Lease in the driver's namespace. */
  readonly lease: readonly Fields[];
}

export interface Plan {
  readonly provisioner: Provisioner;
  readonly socket: Socket;
  readonly sorted: SortedArguments;
  readonly driverName: string;
  /** Of the gateway. */
  readonly image: string;
}

export interface Migrated {
  /** The driver's workload with the gateway. */
  readonly workload: Workload;
  readonly original: Workload;
  /** Service, NetworkPolicy, roles and their bindings. */
  readonly beside: readonly Fields[];
  /** The driver's section of --driver-config. */
  readonly section: Readonly<Record<string, string | readonly string[]>>;
  readonly namespace: string;
  readonly leaseNamespace: string;
  readonly service: string;
  readonly ports: Ports;
  /** As whom the gateway runs; undefined: as the image or the pod says. */
  readonly user: unknown;
}

/** The ports that the gateway listens on. */
export interface Ports {
  readonly gateway: number;
  readonly http: number;
}

const GATEWAY_PORT = 23808;
const GATEWAY_LABELS = ['sutler.dev/gateway', 'sutler.dev/node-gateway'];

export function migrate(plan: Plan, components: Components): Migrated {
  const { provisioner, driverName, sorted } = plan;
  const { workload } = provisioner;
  const namespace = workload.metadata.namespace ?? 'default';
  const service = serviceName(workload.metadata.name);
  const ports = freePorts(workload.spec.template.spec, provisioner.container);
  const user = effective(workload.spec.template.spec, provisioner.container, 'runAsUser');
  const leaseNamespace = sorted.leaseNamespace ?? namespace;
  const fit = (objects: readonly Fields[], at = namespace) =>
    objects.map((object) => fitted(object, { namespace: at, service, ports, driverName }));
  return {
    workload: withGateway(plan, components.sidecar, { service, ports, namespace }),
    original: cleaned(workload),
    beside: [
      ...fit(components.service),
      ...fit(components.rbac),
      ...fit(components.lease, leaseNamespace),
    ],
    section: {
      ...Object.fromEntries(
        [...sorted.section].map(([name, texts]) => [
          name,
          texts.length > 1 ? texts : (texts[0] ?? ''),
        ]),
      ),
      'gateway-service': `${namespace}/${service}`,
      'leader-election-namespace': leaseNamespace,
      ...(sorted.isNodeDeployment ? { 'node-deployment': 'true' } : {}),
    },
    namespace,
    leaseNamespace,
    service,
    ports,
    user,
  };
}

/** Of a workload, whose name may be longer than a Service's, and have dots. */
function serviceName(workload: string): string {
  return `sutler-gateway-${workload.replaceAll('.', '-')}`.slice(0, 63).replace(/-+$/, '');
}

/** Two ports that no other container of the pod names: with hostNetwork they are the node's. */
function freePorts({ containers }: PodSpec, replaced: Container): Ports {
  const text = JSON.stringify(containers.filter((each) => each !== replaced));
  const isTaken = (port: number): boolean => new RegExp(`\\b${port}\\b`).test(text);
  let gateway = GATEWAY_PORT;
  while (isTaken(gateway) || isTaken(gateway + 1)) gateway += 2;
  return { gateway, http: gateway + 1 };
}

/** A field of the security context of a container, which the pod's is the default of. */
function effective(pod: PodSpec, container: Container, field: string): unknown {
  return container.securityContext?.[field] ?? pod.securityContext?.[field];
}

/** What the API server has added, which can't be applied again. */
function cleaned(workload: Workload): Workload {
  const { name, namespace, labels, annotations } = workload.metadata;
  const { apiVersion, kind, spec } = workload;
  const kept = Object.entries((annotations ?? {}) as Fields).filter(
    ([key]) => !/^(kubectl\.kubernetes\.io\/last-applied|deployment\.kubernetes\.io\/)/.test(key),
  );
  const metadata = {
    name,
    ...(namespace === undefined ? {} : { namespace }),
    ...(labels === undefined ? {} : { labels }),
    ...(kept.length === 0 ? {} : { annotations: Object.fromEntries(kept) }),
  };
  return { apiVersion, kind, metadata, spec };
}

function withGateway(
  { provisioner, socket, sorted, image }: Plan,
  sidecar: Workload,
  at: { readonly service: string; readonly ports: Ports; readonly namespace: string },
): Workload {
  const workload = cleaned(provisioner.workload);
  const { template } = workload.spec;
  const pod = template.spec;
  const added = sidecar.spec.template.spec;
  const [gateway] = added.containers;
  if (gateway === undefined) throw new Error('k8s/ has no gateway');
  const label = sorted.isNodeDeployment ? 'sutler.dev/node-gateway' : 'sutler.dev/gateway';
  const labels = { ...(template.metadata?.['labels'] as Fields), [label]: at.service };
  const grace = Math.max(
    pod.terminationGracePeriodSeconds ?? 30,
    added.terminationGracePeriodSeconds ?? 0,
  );
  const spec: PodSpec = {
    ...pod,
    terminationGracePeriodSeconds: grace,
    containers: [
      ...pod.containers.filter(({ name }) => name !== provisioner.container.name),
      fittedGateway(gateway, { provisioner, socket, image, ports: at.ports }),
    ],
    volumes: [...(pod.volumes ?? []), ...(added.volumes ?? [])].map((volume) =>
      volume.name === 'sutler-gateway-tls'
        ? { ...volume, secret: { secretName: `${at.service}-tls` } }
        : volume,
    ),
  };
  const changed = { ...template, metadata: { ...template.metadata, labels }, spec };
  return { ...workload, spec: { ...workload.spec, template: changed } };
}

function fittedGateway(
  gateway: Container,
  o: Pick<Plan, 'provisioner' | 'socket' | 'image'> & { readonly ports: Ports },
): Container {
  const { provisioner, socket, image, ports } = o;
  const args = (gateway.args ?? []).map((arg) =>
    arg
      .replace(/^--csi-address=.*/, `--csi-address=unix://${socket.path}`)
      .replace(/^(--listen=.*:)\d+$/, `$1${ports.gateway}`)
      .replace(/^(--http-endpoint=.*:)\d+$/, `$1${ports.http}`),
  );
  const pod = provisioner.workload.spec.template.spec;
  const asProvisioner = (field: string) => effective(pod, provisioner.container, field);
  // Whoever opened the socket as external-provisioner can open it as the gateway. Its image has no
  // user, so it ran as root where neither pod nor container names one.
  const user = asProvisioner('runAsUser') ?? 0;
  const group = asProvisioner('runAsGroup');
  const { runAsUser: _, runAsGroup: __, ...security } = gateway.securityContext ?? {};
  return {
    ...gateway,
    image,
    args,
    ports: [
      { name: 'gateway', containerPort: ports.gateway },
      { name: 'gateway-http', containerPort: ports.http },
    ],
    securityContext: {
      ...security,
      runAsNonRoot: user !== 0,
      runAsUser: user,
      ...(group === undefined ? {} : { runAsGroup: group }),
    },
    volumeMounts: (gateway.volumeMounts ?? []).map((mount) =>
      mount.name === 'socket-dir' ? { name: socket.volume, mountPath: socket.mountPath } : mount,
    ),
  };
}

/** An object of k8s/ with the names of this driver. */
function fitted(
  object: Fields,
  o: Pick<Migrated, 'namespace' | 'service' | 'ports'> & Pick<Plan, 'driverName'>,
): Fields {
  const { service, ports, namespace } = o;
  const { gateway, http } = ports;
  const text = JSON.stringify(object)
    .replaceAll(/"(sutler-(node-)?gateway)s?"/g, JSON.stringify(service))
    .replaceAll(/"(sutler-node-gateways|sutler-(ingest|jobs)-driver-lease)"/g, (_, name: string) =>
      JSON.stringify(`${name}-${service.replace('sutler-gateway-', '')}`),
    )
    .replaceAll(/"port":23808,/g, `"port":${gateway},`)
    .replaceAll(/"port":23809,"targetPort"/g, `"port":${http},"targetPort"`)
    .replaceAll('"endPort":23807', `"endPort":${gateway - 1}`)
    .replaceAll('"port":23809,"endPort"', `"port":${http},"endPort"`);
  const changed = JSON.parse(text, (key, value: unknown) =>
    GATEWAY_LABELS.includes(key) && value === 'true' ? service : value,
  ) as Fields;
  const { labels: _, ...metadata } = changed['metadata'] as Fields;
  return { ...changed, metadata: { ...metadata, namespace } };
}
