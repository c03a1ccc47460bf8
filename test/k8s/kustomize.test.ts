import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { dump, loadAll } from 'js-yaml';
import { processes } from '#src/processes.ts';
import { parseFlags } from '#src/runtime/flags.ts';
import type { ManifestObject } from '../harness/real-manifests.ts';
import { findKubectls } from '../harness/sandbox-kubectl.ts';

const K8S = fileURLToPath(new URL('../../../k8s', import.meta.url));
const [KUBECTL] = await findKubectls(process.env);

/** A driver of local volumes, as its author would deploy it. */
const DRIVER = {
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'local-driver', namespace: 'sutler', labels: { 'sutler.dev/driver': 'true' } },
  spec: {
    selector: { matchLabels: { app: 'local-driver' } },
    template: {
      metadata: { labels: { app: 'local-driver' } },
      spec: {
        containers: [
          {
            name: 'driver',
            image: 'local-driver',
            volumeMounts: [{ name: 'socket-dir', mountPath: '/csi' }],
          },
        ],
        volumes: [{ name: 'socket-dir', emptyDir: {} }],
      },
    },
  },
};

interface Container {
  readonly args: readonly string[];
  readonly name: string;
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts?: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly subPath?: string;
  }[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
}
interface Pod {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> };
  readonly spec: {
    readonly containers: readonly Container[];
    readonly volumes?: readonly {
      readonly name: string;
      readonly configMap?: { readonly name: string };
    }[];
  };
}
interface Binding {
  readonly roleRef: { readonly name: string };
  readonly subjects: readonly { readonly name: string }[];
}

/** What kubectl makes of base, certificates, the driver, the components and other resources. */
function build(
  components: readonly string[],
  resources: readonly string[] = [],
): readonly ManifestObject[] {
  const folder = mkdtempSync(join(tmpdir(), 'sutler-kustomize-'));
  try {
    const pathOf = (name: string): string => relative(folder, join(K8S, name));
    writeFileSync(join(folder, 'driver.yaml'), dump(DRIVER));
    writeFileSync(
      join(folder, 'kustomization.yaml'),
      dump({
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        resources: [...['base', 'cert-manager', ...resources].map(pathOf), 'driver.yaml'],
        components: components.map(pathOf),
      }),
    );
    const text = execFileSync(KUBECTL ?? '', ['kustomize', folder], { encoding: 'utf8' });
    return loadAll(text) as readonly ManifestObject[];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The pod of a Deployment or DaemonSet. */
function podOf(objects: readonly ManifestObject[], kind: string, name: string): Pod {
  const found = objects.find((object) => object.kind === kind && object.metadata.name === name);
  assert.ok(found !== undefined, `${kind} ${name}`);
  return (found['spec'] as { readonly template: Pod }).template;
}

/** What the process of a container starts with. */
function startOf({ args, env: list = [] }: Container): {
  readonly flags: Readonly<Record<string, unknown>>;
  readonly env: Readonly<Record<string, string>>;
} {
  const [name = '', ...argv] = args;
  const env = Object.fromEntries(list.map((each) => [each.name, each.value ?? 'from a field']));
  const process = processes[name];
  assert.ok(process !== undefined, name);
  const parsed = parseFlags(process.flags, { argv, env });
  assert.ok(parsed.kind === 'run');
  return { flags: parsed.flags, env };
}

describe(
  'base, a DaemonSet, node-local, topology and capacity together',
  { skip: KUBECTL === undefined && 'no kubectl on PATH' },
  () => {
    let objects: readonly ManifestObject[];
    before(() => {
      objects = build(['node-local', 'topology', 'capacity']);
    });

    const containerOf = (kind: string, pod: string, name: string): Container => {
      const found = podOf(objects, kind, pod).spec.containers.find(
        (container) => container.name === name,
      );
      assert.ok(found !== undefined, `${kind} ${pod}, container ${name}`);
      return found;
    };

    for (const name of ['ingest', 'jobs'] as const)
      it(`${name} asks the gateways of nodes and publishes capacity`, () => {
        const container = containerOf('Deployment', `sutler-${name}`, name);
        const { flags, env } = startOf(container);
        assert.equal(flags['nodeDeployment'], true);
        assert.equal(flags['gatewayService'], 'sutler/sutler-node-gateway');
        assert.equal(flags['enableCapacity'], true);
        assert.ok('NAMESPACE' in env);
        assert.equal('POD_NAME' in env, name === 'jobs');
      });

    it('the driver’s pod gets a gateway that the Service selects', () => {
      const container = containerOf('DaemonSet', 'local-driver', 'csi-gateway');
      assert.equal(startOf(container).flags['csiAddress'], 'unix:///csi/csi.sock');
      const { labels } = podOf(objects, 'DaemonSet', 'local-driver').metadata;
      const service = objects.find(
        ({ kind, metadata }) => kind === 'Service' && metadata.name === 'sutler-node-gateway',
      );
      assert.ok(service !== undefined);
      const { selector } = service['spec'] as { readonly selector: Record<string, string> };
      assert.deepEqual({ ...labels, ...selector }, labels);
    });

    it('ingest and jobs may read nodes, gateways of nodes, and capacity', () => {
      const granted = new Map(
        objects
          .filter(({ kind }) => kind === 'RoleBinding' || kind === 'ClusterRoleBinding')
          .map((binding) => binding as unknown as Binding)
          .map(({ roleRef, subjects }) => [roleRef.name, subjects.map(({ name }) => name)]),
      );
      for (const role of ['sutler-topology', 'sutler-node-gateways'])
        assert.deepEqual(granted.get(role), ['sutler-ingest', 'sutler-jobs'], role);
      assert.deepEqual(granted.get('sutler-ingest-capacity'), ['sutler-ingest']);
      assert.deepEqual(granted.get('sutler-jobs-capacity'), ['sutler-jobs']);
    });
  },
);

describe(
  'base, webhooks, admission, Knative and Argo Events together',
  { skip: KUBECTL === undefined && 'no kubectl on PATH' },
  () => {
    let objects: readonly ManifestObject[];
    let ingest: Container;
    before(() => {
      objects = build(['webhooks'], ['admission', 'knative', 'argo-events']);
      const [only] = podOf(objects, 'Deployment', 'sutler-ingest').spec.containers;
      assert.ok(only !== undefined);
      ingest = only;
    });

    it('ingest watches, and takes hints at the ports of the Service', () => {
      const { flags } = startOf(ingest);
      assert.equal(flags['eventSource'], 'both');
      const portOf = (name: string) =>
        ingest.ports?.find((each) => each.name === name)?.containerPort;
      assert.equal(flags['webhookAddress'], `:${portOf('events')}`);
      assert.equal(flags['admissionAddress'], `:${portOf('admission')}`);
    });

    it('ingest reads certificate and token where their Secrets are mounted', () => {
      const { flags } = startOf(ingest);
      const mounted = (name: string) =>
        ingest.volumeMounts?.find((each) => each.name === name)?.mountPath;
      assert.equal(flags['webhookTlsCert'], `${mounted('webhooks-tls')}/tls.crt`);
      assert.equal(flags['webhookTlsKey'], `${mounted('webhooks-tls')}/tls.key`);
      assert.equal(flags['admissionTlsCert'], flags['webhookTlsCert']);
      assert.equal(flags['admissionTlsKey'], flags['webhookTlsKey']);
      assert.deepEqual(flags['webhookTokenFile'], `${mounted('webhook-token')}/token`);
    });

    it('has the objects of all senders', () => {
      const kinds = new Set(objects.map(({ kind }) => kind));
      for (const kind of [
        'ValidatingWebhookConfiguration',
        'ApiServerSource',
        'EventSource',
        'Sensor',
      ])
        assert.ok(kinds.has(kind), kind);
    });
  },
);

describe(
  'base and drivers together',
  { skip: KUBECTL === undefined && 'no kubectl on PATH' },
  () => {
    let objects: readonly ManifestObject[];
    before(() => {
      objects = build(['drivers']);
    });

    for (const name of ['ingest', 'jobs'] as const)
      it(`${name} reads a file of the ConfigMap that it mounts as a folder`, () => {
        const { containers, volumes = [] } = podOf(objects, 'Deployment', `sutler-${name}`).spec;
        const [container] = containers;
        assert.ok(container !== undefined);
        const mount = container.volumeMounts?.find((each) => each.name === 'drivers');
        assert.equal(startOf(container).flags['driverConfig'], `${mount?.mountPath}/drivers.yaml`);
        assert.equal(mount?.subPath, undefined);
        const configMap = volumes.find((each) => each.name === 'drivers')?.configMap?.name;
        const found = objects.find(
          ({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === configMap,
        );
        assert.ok(found !== undefined, 'the ConfigMap is there');
        assert.ok('drivers.yaml' in (found['data'] as object));
      });
  },
);
