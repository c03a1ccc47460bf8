import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse, parseAllDocuments, stringify } from 'yaml';

/* The Helm chart is made of k8s/: each object is read there, and gets the places where values go.
 * A place is a text between marks, since YAML has to be written around it. */

type Fields = Record<string, unknown>;
interface Named extends Fields {
  readonly name: string;
}
type Labels = Readonly<Record<string, string>>;
type Variables = readonly Named[] | undefined;
interface Container extends Named {
  image: string;
  env?: readonly unknown[];
  volumeMounts?: readonly unknown[];
  resources?: unknown;
}
interface Pod extends Fields {
  containers: readonly Container[];
  volumes?: readonly unknown[];
}
interface KubeObject extends Fields {
  readonly kind: string;
  readonly metadata: { name: string };
  spec?: Fields & {
    replicas?: unknown;
    template?: { metadata?: { readonly labels?: Labels; annotations?: Labels }; spec: Pod };
    egress?: readonly unknown[];
    readonly groups?: readonly { readonly rules: readonly Rule[] }[];
  };
  data?: Fields;
}
/** Of a PrometheusRule. */
interface Rule {
  readonly annotations?: { runbook_url: string };
}
interface ConfigMapArgs {
  readonly name: string;
  readonly files: readonly string[];
  /** With `disableNameSuffixHash`. */
  readonly options?: { readonly labels: Labels };
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const OWN = 'eq .Values.redis.mode "single"';
const PLAIN = `or (${OWN}) .Values.redis.insecure`;
const QUICKSTART = 'overlays/quickstart';
/** Of these files the chart has the ConfigMaps that they make. */
const MONITORING = 'monitoring/kustomization.yaml';
const DRIVERS = 'drivers/kustomization.yaml';

const FILE_OF_DRIVERS = 'dict "drivers" .Values.drivers | toYaml';

/** Values whose keys are those of Kubernetes. */
const OPEN = new Set(['resources']);

/** The files of k8s/ that the chart has, and the condition under which. */
const SOURCES: readonly (readonly [file: string, condition?: string])[] = [
  ['base/service-accounts.yaml'],
  ['base/rbac-ingest.yaml'],
  ['base/rbac-jobs.yaml'],
  ['base/ingest.yaml'],
  ['base/jobs.yaml'],
  ['base/dashboard.yaml', '.Values.dashboard.enabled'],
  ['base/network-policy.yaml', '.Values.networkPolicy.enabled'],
  ['egress/network-policy.yaml', '.Values.networkPolicy.egress'],
  ['monitoring/service-monitor.yaml', '.Values.monitoring.serviceMonitor'],
  ['monitoring/pod-monitor.yaml', '.Values.monitoring.serviceMonitor'],
  ['monitoring/prometheus-rule.yaml', '.Values.monitoring.prometheusRule'],
  [MONITORING, '.Values.monitoring.grafanaDashboard'],
  ['topology/rbac.yaml', '.Values.topology'],
  ['cert-manager/certificates.yaml', '.Values.certManager'],
  [DRIVERS],
  [`${QUICKSTART}/redis.yaml`, OWN],
  ['make-secrets/job.yaml', OWN],
];

/** The folder whose ConfigMap goes with a file. */
const CONFIG_MAPS: Readonly<Record<string, string>> = {
  [`${QUICKSTART}/redis.yaml`]: 'redis',
  [MONITORING]: 'monitoring',
  [DRIVERS]: 'drivers',
};

/** A line that is nothing but a directive. */
const line = (directive: string): string => `§${directive}§`;
/** A value. */
const inline = (expression: string): string => `⟦${expression}⟧`;
const toTemplate = (yaml: string): string =>
  yaml
    .replaceAll('{{', '{{ "{{" }}')
    .replaceAll(/^.*§(.*)§.*$/gm, (_, directive: string) => `{{- ${directive} }}`)
    .replaceAll(/⟦(.*?)⟧/g, (_, expression: string) => `{{ ${expression} }}`);
const write = (value: unknown): string => stringify(value, { lineWidth: 0 });

/** Every file of charts/sutler that is made of k8s/: its path there, and its content. */
export function chartFiles(): ReadonlyMap<string, string> {
  const files = SOURCES.map(([file, condition]) => {
    const objects = (
      file.endsWith('/kustomization.yaml') ? [] : readYaml(file)
    ) as readonly KubeObject[];
    const folder = CONFIG_MAPS[file];
    const extra = folder === undefined ? [] : [configMapOf(folder)];
    const text = [...objects, ...extra].map((object) => write(withValues(object))).join('---\n');
    const wrapped = condition === undefined ? text : `${line(`if ${condition}`)}\n${text}§end§\n`;
    const head = `# Made of k8s/${file} by npm run generate:chart.\n`;
    return [`templates/${file.replaceAll('/', '-')}`, head + toTemplate(wrapped)] as const;
  });
  const valuesText = values();
  // Helm adds `global` to the values of a chart within another.
  const schema = JSON.stringify(schemaOf(parse(`${valuesText}global: {}\n`)), undefined, 2);
  return new Map([
    ...files,
    ['Chart.yaml', write(chart())],
    ['values.yaml', valuesText],
    ['values.schema.json', `${schema}\n`],
  ]);
}

/** The documents of one file below `k8s/`. */
function readYaml(path: string): readonly unknown[] {
  const text = readFileSync(join(ROOT, 'k8s', path), 'utf8');
  return parseAllDocuments(text).map((each) => each.toJS() as unknown);
}

/** What the chart says of itself: to Helm, and to Artifact Hub, which lists charts. */
function chart(): object {
  const { version, description, license, repository } = JSON.parse(
    readFileSync(join(ROOT, 'package.json'), 'utf8'),
  ) as Readonly<Record<string, string>> & { readonly repository: { readonly url: string } };
  const address = repository.url.replaceAll(/^git\+|\.git$/g, '');
  const links = ['docs/drop-in.md', 'docs/support.md', 'CHANGELOG.md'].map((file) => ({
    name: file,
    url: `${address}/blob/v${version}/${file}`,
  }));
  return {
    apiVersion: 'v2',
    name: 'sutler',
    description,
    version,
    appVersion: version,
    // The oldest that can work (docs/support.md).
    kubeVersion: '>=1.22.0-0',
    home: address,
    sources: [address],
    keywords: ['csi', 'storage', 'provisioner', 'persistentvolume', 'bullmq'],
    maintainers: [{ name: 'The sutler authors', url: address }],
    annotations: {
      'artifacthub.io/category': 'storage',
      'artifacthub.io/license': license,
      'artifacthub.io/links': stringify(links),
    },
  };
}

/** A schema that refuses unknown values. What is empty, or below `resources`, may have any keys. */
function schemaOf(value: unknown, isOpen = false): object {
  if (Array.isArray(value)) return { type: 'array' };
  if (typeof value !== 'object' || value === null)
    return { type: typeof value === 'number' ? 'integer' : typeof value };
  const entries = Object.entries(value);
  if (isOpen || entries.length === 0) return { type: 'object' };
  const properties = entries.map(([key, each]) => [key, schemaOf(each, OPEN.has(key))] as const);
  return {
    type: 'object',
    additionalProperties: false,
    properties: Object.fromEntries(properties),
  };
}

/** The values. In the template, `@FILE PATH@` is what stands there in a file of k8s/. */
function values(): string {
  const text = readFileSync(join(ROOT, 'charts/sutler/values.template'), 'utf8');
  return text.replaceAll(/@(\S+) ([\w.]+)@/g, (_, file: string, path: string) => {
    const value = path.split('.').reduce<unknown>((at, key) => {
      const found = (at as Fields)[key];
      if (found === undefined) throw new Error(`values.template: k8s/${file} has no ${path}`);
      return found;
    }, readYaml(file)[0]);
    return stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trim();
  });
}

/** The ConfigMap that a folder's kustomization makes of files. Its name ends in a hash of them, so
 * that Redis starts anew with others, unless `options` say otherwise. */
function configMapOf(folder: string): KubeObject {
  const [{ configMapGenerator }] = readYaml(`${folder}/kustomization.yaml`) as readonly [
    { readonly configMapGenerator: readonly [ConfigMapArgs] },
  ];
  const [{ name, files, options }] = configMapGenerator;
  const texts = files.map((file) => [file, readFileSync(join(ROOT, 'k8s', folder, file), 'utf8')]);
  const hash = createHash('sha256').update(JSON.stringify(texts)).digest('hex').slice(0, 10);
  const metadata =
    options === undefined
      ? { name: `${name}-${hash}`, namespace: 'sutler' }
      : { name, namespace: 'sutler', labels: options.labels };
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: Object.fromEntries(texts) };
}

function withValues(object: KubeObject): KubeObject {
  const { metadata, spec } = object;
  if (metadata.name.startsWith('sutler-drivers')) {
    metadata.name = 'sutler-drivers';
    object.data = { 'drivers.yaml': inline(`${FILE_OF_DRIVERS} | quote`) };
  }
  withRunbookBase(object);
  if (spec?.egress !== undefined) spec.egress = [...spec.egress, ...rulesForMorePorts];
  const template = spec?.template;
  if (spec === undefined || template === undefined) return object;
  const component = metadata.name.replace('sutler-', '');
  // A Job can't be changed.
  if (object.kind === 'Job') metadata.name += `-${inline('.Release.Revision')}`;
  const isOurs = object.kind === 'Deployment';
  if (isOurs && component !== 'dashboard') spec.replicas = inline(`.Values.replicas.${component}`);
  // They read the file when they start.
  if (patchOf('drivers', component) !== undefined)
    template.metadata = {
      ...template.metadata,
      annotations: { 'sutler.dev/drivers': inline(`${FILE_OF_DRIVERS} | sha256sum`) },
    };
  template.spec = podWithValues(template.spec, {
    component,
    isOurs,
    labels: labelsOf(template),
  });
  return object;
}

/** Has the run book of each alert begin with a value. */
function withRunbookBase({ spec }: KubeObject): void {
  for (const { annotations } of spec?.groups?.flatMap(({ rules }) => rules) ?? [])
    if (annotations !== undefined)
      annotations.runbook_url = inline(
        `print .Values.monitoring.runbookBase "${annotations.runbook_url}" | quote`,
      );
}

const labelsOf = ({ metadata }: { readonly metadata?: { readonly labels?: Labels } }): Labels =>
  metadata?.labels ?? {};

function podWithValues(
  pod: Pod,
  o: { readonly component: string; readonly isOurs: boolean; readonly labels: Labels },
): Pod {
  const { component, isOurs } = o;
  const drivers = patchOf('drivers', component);
  const { env: driverEnv = [], volumeMounts: driverMounts = [] } = drivers?.containers[0] ?? {};
  const plain = patchOf(QUICKSTART, component)?.containers[0]?.env as Variables;
  const more = isOurs ? listed(`.Values.env.${component}`, inline('toJson .')) : [];
  const containers = pod.containers.map(({ env, volumeMounts = [], resources, ...rest }) => ({
    ...rest,
    image: inline(`.Values.${component === 'redis' ? 'redis.image' : 'image'} | quote`),
    env: [...merged(env as Variables, plain), ...driverEnv, ...more].map(secretOfRedis(isOurs)),
    volumeMounts: [...volumeMounts, ...driverMounts],
    resources:
      component === 'secrets' ? resources : inline(`toJson .Values.resources.${rest.name}`),
  }));
  const pairs = Object.entries(o.labels).flatMap(([name, value]) => [`"${name}"`, `"${value}"`]);
  const labels = `dict ${pairs.join(' ')}`;
  const spread = `merge (dict "labelSelector" (dict "matchLabels" (${labels}))) . | toJson`;
  return {
    ...pod,
    imagePullSecrets: inline('toJson .Values.imagePullSecrets'),
    priorityClassName: inline('.Values.priorityClassName | quote'),
    nodeSelector: inline('toJson .Values.nodeSelector'),
    tolerations: inline('toJson .Values.tolerations'),
    ...('topologySpreadConstraints' in pod
      ? {
          topologySpreadConstraints: listed('.Values.topologySpreadConstraints', inline(spread)),
        }
      : {}),
    containers,
    volumes: [...(pod.volumes ?? []), ...(drivers?.volumes ?? [])].map((volume) => {
      const { configMap } = volume as { configMap?: { name: string } };
      if (configMap?.name === 'sutler-redis-users')
        configMap.name = configMapOf('redis').metadata.name;
      return secretOfRedis(isOurs)(volume);
    }),
  };
}

const listed = (list: string, item: string): readonly string[] => [
  line(`range ${list}`),
  item,
  line('end'),
];

/** A rule without ports would allow all. */
const rulesForMorePorts: readonly unknown[] = [
  line('if .Values.networkPolicy.egressPorts'),
  {
    ports: listed(
      '.Values.networkPolicy.egressPorts',
      inline('dict "protocol" "TCP" "port" . | toJson'),
    ),
  },
  line('end'),
];

/** The pod that a folder's kustomization merges into a Deployment. */
function patchOf(folder: string, component: string): Pod | undefined {
  const [{ patches = [] }] = readYaml(`${folder}/kustomization.yaml`) as readonly [
    { readonly patches?: readonly { readonly patch: string }[] },
  ];
  return patches
    .map(({ patch }) => parse(patch) as KubeObject)
    .find(({ kind, metadata }) => kind !== 'ConfigMap' && metadata.name === `sutler-${component}`)
    ?.spec?.template?.spec;
}

/** Variables, with those that a Redis without TLS needs. */
function merged(env: Variables = [], patch: Variables = []): readonly unknown[] {
  const own = env.flatMap((entry): readonly unknown[] => {
    const other = patch.find(({ name }) => name === entry.name);
    if (other === undefined) return [entry];
    // The only one that both have: the authority, which a public one does not need.
    const value = inline(
      `ternary "${String(entry['value'])}" "" .Values.redis.caFromSecret | quote`,
    );
    return [line(`if ${PLAIN}`), other, line('else'), { ...entry, value }, line('end')];
  });
  const added = new Map(patch.map((entry) => [entry.name, entry]));
  for (const { name } of env) added.delete(name);
  if (added.size === 0) return own;
  return [...own, line(`if ${PLAIN}`), ...added.values(), line('end')];
}

/** What names the Secret of Redis, with the name of the values. The chart's own Redis reads the one
 * that the Job makes. */
const secretOfRedis =
  (isOurs: boolean) =>
  (entry: unknown): unknown => {
    if (!isOurs) return entry;
    const { valueFrom, secret } = entry as {
      readonly valueFrom?: { readonly secretKeyRef?: { name: string } };
      readonly secret?: { secretName: string };
    };
    const name = inline(`ternary "sutler-redis" .Values.redis.secret (${OWN})`);
    if (valueFrom?.secretKeyRef?.name === 'sutler-redis') valueFrom.secretKeyRef.name = name;
    if (secret?.secretName === 'sutler-redis') secret.secretName = name;
    return entry;
  };
