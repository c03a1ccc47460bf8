/** A manifest's fields, of which nothing is known. */
type Fields = Readonly<Record<string, unknown>>;

/** Kinds of volumes that the restricted profile allows. */
const VOLUME_KINDS = new Set([
  'configMap',
  'csi',
  'downwardAPI',
  'emptyDir',
  'ephemeral',
  'persistentVolumeClaim',
  'projected',
  'secret',
]);
const SYSCTLS = new Set([
  'kernel.shm_rmid_forced',
  'net.ipv4.ip_local_port_range',
  'net.ipv4.ip_local_reserved_ports',
  'net.ipv4.ip_unprivileged_port_start',
  'net.ipv4.ping_group_range',
  'net.ipv4.tcp_fin_timeout',
  'net.ipv4.tcp_keepalive_intvl',
  'net.ipv4.tcp_keepalive_probes',
  'net.ipv4.tcp_keepalive_time',
  'net.ipv4.tcp_rmem',
  'net.ipv4.tcp_syncookies',
  'net.ipv4.tcp_wmem',
]);
const SELINUX_TYPES = new Set(['', 'container_t', 'container_init_t', 'container_kvm_t']);

const fieldsOf = (value: unknown): Fields => (value ?? {}) as Fields;
const listOf = (value: unknown): readonly Fields[] => (value ?? []) as readonly Fields[];
const typeOf = (value: unknown): unknown => fieldsOf(value)['type'];

/** What a container breaks of the "restricted" Pod Security Standard of Kubernetes 1.36. A setting
 * of the container goes before that of its pod. */
export function containerViolations(container: Fields, pod: Fields): readonly string[] {
  const own = fieldsOf(container['securityContext']);
  const both = { ...fieldsOf(pod['securityContext']), ...own };
  const capabilities = fieldsOf(own['capabilities']);
  const added = (capabilities['add'] ?? []) as readonly string[];
  const rules: Readonly<Record<string, boolean>> = {
    privileged: own['privileged'] !== true,
    allowPrivilegeEscalation: own['allowPrivilegeEscalation'] === false,
    'capabilities.drop': ((capabilities['drop'] ?? []) as readonly string[]).includes('ALL'),
    'capabilities.add': added.every((name) => name === 'NET_BIND_SERVICE'),
    runAsNonRoot: both['runAsNonRoot'] === true,
    runAsUser: both['runAsUser'] !== 0,
    seccompProfile: ['RuntimeDefault', 'Localhost'].includes(
      String(typeOf(both['seccompProfile'])),
    ),
    appArmorProfile: typeOf(own['appArmorProfile']) !== 'Unconfined',
    procMount: [undefined, 'Default'].includes(own['procMount'] as string | undefined),
    seLinuxOptions: isPlainSeLinux(own['seLinuxOptions']),
    windowsOptions: fieldsOf(own['windowsOptions'])['hostProcess'] !== true,
    hostPort: listOf(container['ports']).every(({ hostPort }) => (hostPort ?? 0) === 0),
    'host of a probe': hasNoProbeHost(container),
  };
  return namesOfBroken(rules);
}

/** What a pod breaks of it, apart from its containers. */
export function podViolations(pod: Fields): readonly string[] {
  const context = fieldsOf(pod['securityContext']);
  return namesOfBroken({
    hostNetwork: pod['hostNetwork'] !== true,
    hostPID: pod['hostPID'] !== true,
    hostIPC: pod['hostIPC'] !== true,
    runAsUser: context['runAsUser'] !== 0,
    seccompProfile: typeOf(context['seccompProfile']) !== 'Unconfined',
    appArmorProfile: typeOf(context['appArmorProfile']) !== 'Unconfined',
    seLinuxOptions: isPlainSeLinux(context['seLinuxOptions']),
    windowsOptions: fieldsOf(context['windowsOptions'])['hostProcess'] !== true,
    sysctls: listOf(context['sysctls']).every(({ name }) => SYSCTLS.has(String(name))),
    volumes: listOf(pod['volumes']).every((volume) =>
      Object.keys(volume).every((key) => key === 'name' || VOLUME_KINDS.has(key)),
    ),
  });
}

function isPlainSeLinux(options: unknown): boolean {
  const { type, user, role } = fieldsOf(options);
  return SELINUX_TYPES.has((type as string | undefined) ?? '') && !user && !role;
}

function hasNoProbeHost(container: Fields): boolean {
  const { postStart, preStop } = fieldsOf(container['lifecycle']);
  const { livenessProbe, readinessProbe, startupProbe } = container;
  return [livenessProbe, readinessProbe, startupProbe, postStart, preStop]
    .flatMap((each) => [fieldsOf(each)['httpGet'], fieldsOf(each)['tcpSocket']])
    .every((action) => !fieldsOf(action)['host']);
}

function namesOfBroken(rules: Readonly<Record<string, boolean>>): readonly string[] {
  return Object.entries(rules).flatMap(([name, isKept]) => (isKept ? [] : [name]));
}
