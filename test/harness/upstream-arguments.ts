/* What external-provisioner accepts on its command line: names, defaults and values that its
 * --help and its parser show, for the last patch release of each minor version. */

/** Its last five minor versions, oldest first. */
export const MINOR_VERSIONS = ['5.3', '6.0', '6.1', '6.2', '6.3'] as const;
export type MinorVersion = (typeof MINOR_VERSIONS)[number];

/** Each flag of the last version: its default, and other values that it accepts. A switch accepts
 * only the opposite of its default besides. The default of leader-election-labels can't be given
 * there: an empty text is refused. */
export const UPSTREAM_FLAGS: Readonly<Record<string, readonly [string, ...string[]]>> = {
  master: ['', 'https://127.0.0.1:6443'],
  'volume-name-prefix': ['pvc', 'vol'],
  'volume-name-uuid-length': ['-1', '1', '32'],
  'retry-interval-start': ['1s', '300ms'],
  'retry-interval-max': ['5m', '1h30m'],
  'worker-threads': ['100', '1'],
  'cloning-protection-threads': ['1', '0', '5'],
  'snapshot-orphan-sweep-interval': ['5m', '0', '-1s', '720h'],
  'capacity-threads': ['1', '0', '10'],
  timeout: ['10s', '2m'],
  'strict-topology': ['false'],
  'immediate-topology': ['true'],
  'extra-create-metadata': ['false'],
  'enable-pprof': ['false'],
  'default-fstype': ['', 'ext4'],
  'kube-api-capacity-qps': ['1', '0.5', '-1'],
  'kube-api-capacity-burst': ['5', '0'],
  'enable-capacity': ['false'],
  'capacity-for-immediate-binding': ['false'],
  'capacity-poll-interval': ['1m', '30s'],
  'capacity-ownerref-level': ['1', '-1', '0', '2'],
  'node-deployment': ['false'],
  'node-deployment-immediate-binding': ['true'],
  'node-deployment-base-delay': ['20s', '0'],
  'node-deployment-max-delay': ['60s', '2m'],
  'controller-publish-readonly': ['false'],
  'prevent-volume-mode-conversion': ['true'],
  'feature-gates': ['', 'Topology=true,AllAlpha=false', 'CrossNamespaceVolumeDataSource=T'],
  kubeconfig: ['', '/config'],
  'csi-address': ['/run/csi/socket', 'unix:///csi/csi.sock'],
  'leader-election': ['false'],
  'leader-election-namespace': ['', 'ns'],
  'leader-election-lease-duration': ['15s', '137s'],
  'leader-election-renew-deadline': ['10s', '107s'],
  'leader-election-retry-period': ['5s', '26s'],
  'leader-election-labels': ['', 'a:b,c:d'],
  'kube-api-qps': ['5', '0', '-1', '20.5'],
  'kube-api-burst': ['10', '40'],
  'http-endpoint': ['', ':8080'],
  'metrics-address': ['', ':8080'],
  'metrics-path': ['/metrics', '/m'],
  automaxprocs: ['false'],
  'logging-format': ['text', 'json'],
  'log-flush-frequency': ['5s', '1s'],
  v: ['0', '5'],
  vmodule: ['', 'a=1,b=2'],
  'log-text-split-stream': ['false'],
  'log-text-info-buffer-size': ['0', '1Ki'],
  'log-json-split-stream': ['false'],
  'log-json-info-buffer-size': ['0', '1Ki'],
};

/** The flags that the oldest of these versions did not have, with the first one that did. No
 * flag was removed in them. */
const FLAG_SINCE: Readonly<Record<string, MinorVersion>> = {
  automaxprocs: '6.0',
  'snapshot-orphan-sweep-interval': '6.0',
  'leader-election-labels': '6.2',
};

const isIn = (version: MinorVersion, since: MinorVersion = MINOR_VERSIONS[0]): boolean =>
  MINOR_VERSIONS.indexOf(since) <= MINOR_VERSIONS.indexOf(version);

/** The flags of one version. */
export function upstreamFlags(version: MinorVersion): typeof UPSTREAM_FLAGS {
  return Object.fromEntries(
    Object.entries(UPSTREAM_FLAGS).filter(([name]) => isIn(version, FLAG_SINCE[name])),
  );
}

/** The provisioner's own gates of one version, and whether each is on by default. */
export function upstreamGates(version: MinorVersion): Readonly<Record<string, boolean>> {
  return {
    Topology: true,
    CrossNamespaceVolumeDataSource: false,
    VolumeAttributesClass: isIn(version, '6.0'),
    ...(isIn(version, '6.0') ? { ReleaseLeaderElectionOnExit: false } : {}),
    ...(isIn(version, '6.2') ? {} : { HonorPVReclaimPolicy: true }),
    AllAlpha: false,
    AllBeta: false,
  };
}

/** Arguments that drivers give it, by the kind of driver, with the pod's variables filled in. */
export const DRIVER_ARGUMENTS: Readonly<Record<string, readonly string[]>> = {
  'upstream’s example': [
    '--csi-address=/csi/csi.sock',
    '--leader-election',
    '--http-endpoint=:8080',
  ],
  'a cloud’s disks, in zones': [
    '--timeout=60s',
    '--csi-address=/csi/csi.sock',
    '--v=2',
    '--feature-gates=Topology=true,VolumeAttributesClass=true',
    '--extra-create-metadata',
    '--leader-election=true',
    '--default-fstype=ext4',
    '--kube-api-qps=20',
    '--kube-api-burst=100',
    '--worker-threads=100',
    '--retry-interval-max=30m',
    '--http-endpoint=0.0.0.0:3302',
  ],
  'disks that can be attached read-only': [
    '--v=5',
    '--csi-address=/csi/csi.sock',
    '--feature-gates=Topology=true',
    '--http-endpoint=:22011',
    '--leader-election-namespace=driver',
    '--timeout=250s',
    '--extra-create-metadata',
    '--leader-election',
    '--default-fstype=ext4',
    '--controller-publish-readonly=true',
  ],
  'a network file system': [
    '-v=2',
    '--csi-address=unix:///csi/csi.sock',
    '--leader-election',
    '--leader-election-namespace=kube-system',
    '--extra-create-metadata=true',
    '--feature-gates=HonorPVReclaimPolicy=true,VolumeAttributesClass=false',
    '--timeout=1200s',
    '--retry-interval-max=30m',
  ],
  'a storage cluster': [
    '--csi-address=unix:///csi/csi-provisioner.sock',
    '--v=1',
    '--timeout=150s',
    '--retry-interval-start=500ms',
    '--leader-election=true',
    '--feature-gates=HonorPVReclaimPolicy=true',
    '--prevent-volume-mode-conversion=true',
    '--default-fstype=ext4',
    '--extra-create-metadata=true',
    '--immediate-topology=false',
    '--http-endpoint=10.0.0.7:8090',
  ],
  'virtual machines, with a slow Lease': [
    '--v=4',
    '--timeout=300s',
    '--csi-address=/csi/csi.sock',
    '--kube-api-qps=100',
    '--kube-api-burst=100',
    '--leader-election',
    '--leader-election-lease-duration=120s',
    '--leader-election-renew-deadline=60s',
    '--leader-election-retry-period=30s',
    '--default-fstype=ext4',
    '--feature-gates=Topology=true',
    '--strict-topology',
    '--enable-capacity=true',
    '--capacity-ownerref-level=-1',
  ],
  'logical volumes, with capacity': [
    '--csi-address=/run/driver/csi.sock',
    '--feature-gates=Topology=True',
    '--leader-election',
    '--leader-election-namespace',
    'driver-system',
    '--http-endpoint=:9809',
    '--enable-capacity',
    '--capacity-ownerref-level=2',
    '--capacity-poll-interval=30s',
  ],
};
