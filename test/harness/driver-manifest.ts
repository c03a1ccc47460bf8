type Fields = Readonly<Record<string, unknown>>;

/** What differs between the manifests of drivers. */
export interface DriverTraits {
  readonly kind?: string;
  /** Of the workload. */
  readonly name?: string;
  readonly namespace?: string;
  /** Where the volume of the driver's socket is mounted. */
  readonly mountPath?: string;
  /** Of external-provisioner. */
  readonly args?: readonly string[];
  /** Fields of external-provisioner's container. */
  readonly container?: Fields;
  readonly pod?: Fields;
  /** More containers. */
  readonly others?: readonly Fields[];
}

/** A driver's workload, as its vendor may write it. */
export function driverManifest(traits: DriverTraits = {}): object {
  const { kind = 'Deployment', name = 'shop-controller', namespace, others = [] } = traits;
  const labels = { app: 'shop' };
  const provisioner = {
    name: 'csi-provisioner',
    image: 'example.com/sig/csi-provisioner:v6.3.0',
    args: traits.args ?? ['--csi-address=$(ADDRESS)', '--leader-election'],
    env: [{ name: 'ADDRESS', value: '/plugin/csi.sock' }],
    volumeMounts: [{ name: 'sockets', mountPath: traits.mountPath ?? '/plugin' }],
    ...traits.container,
  };
  const driver = { name: 'shop-driver', image: 'example.com/shop:v1' };
  const spec = {
    containers: [driver, provisioner, ...others],
    volumes: [{ name: 'sockets', emptyDir: {} }],
    ...traits.pod,
  };
  return {
    apiVersion: 'apps/v1',
    kind,
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), labels },
    spec: {
      ...(kind === 'DaemonSet' ? {} : { replicas: 2 }),
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec },
    },
  };
}
