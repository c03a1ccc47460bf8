import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { processes } from '#src/processes.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { KUBECTL, localDriver, render, type Rendered } from '../harness/kustomize.ts';
import type { ManifestObject } from '../harness/real-manifests.ts';

interface Container {
  readonly args: readonly string[];
  readonly name: string;
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts?: readonly {
    readonly name: string;
    readonly mountPath: string;
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
/** What kubectl makes of base, certificates, a driver, the components and other resources. */
function build(
  components: readonly string[],
  resources: readonly string[] = [],
): readonly ManifestObject[] {
  return render({ components, resources: ['base', 'cert-manager', ...resources] });
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
  'base, a DaemonSet, gateway, topology and capacity together',
  { skip: KUBECTL === undefined && 'no kubectl on PATH' },
  () => {
    let objects: readonly ManifestObject[];
    before(() => {
      objects = build(['gateway', 'topology', 'capacity']);
    });

    const containerOf = (kind: string, pod: string, name: string): Container => {
      const found = podOf(objects, kind, pod).spec.containers.find(
        (container) => container.name === name,
      );
      assert.ok(found !== undefined, `${kind} ${pod}, container ${name}`);
      return found;
    };

    for (const name of ['ingest', 'jobs'] as const)
      it(`${name} asks the driver’s gateways and looks after capacity`, () => {
        const container = containerOf('Deployment', `sutler-${name}`, name);
        const { flags, env } = startOf(container);
        assert.equal(flags['gatewayService'], 'local-storage/sutler-gateway');
        assert.equal(flags['enableCapacity'], true);
        assert.equal('NAMESPACE' in env, name === 'ingest');
        assert.equal('POD_NAME' in env, name === 'ingest');
      });

    it('the driver’s pod gets a gateway that the Service selects', () => {
      const container = containerOf('DaemonSet', 'local-driver', 'csi-gateway');
      assert.equal(startOf(container).flags['csiAddress'], 'unix:///csi/csi.sock');
      const { labels } = podOf(objects, 'DaemonSet', 'local-driver').metadata;
      const service = objects.find(
        ({ kind, metadata }) => kind === 'Service' && metadata.name === 'sutler-gateway',
      );
      assert.equal(service?.metadata.namespace, 'local-storage');
      const { selector } = service['spec'] as { readonly selector: Record<string, string> };
      assert.deepEqual({ ...labels, ...selector }, labels);
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
      it(`${name} reads a file of the ConfigMap that it mounts, whose name changes with it`, () => {
        const { containers, volumes = [] } = podOf(objects, 'Deployment', `sutler-${name}`).spec;
        const [container] = containers;
        assert.ok(container !== undefined);
        const mount = container.volumeMounts?.find((each) => each.name === 'drivers');
        assert.equal(startOf(container).flags['driverConfig'], `${mount?.mountPath}/drivers.yaml`);
        const configMap = volumes.find((each) => each.name === 'drivers')?.configMap?.name;
        const found = objects.find(
          ({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === configMap,
        );
        assert.ok(found !== undefined, 'the ConfigMap is there');
        assert.ok('drivers.yaml' in (found['data'] as object));
        assert.match(found.metadata.name, /^sutler-drivers-\w{10}$/);
      });
  },
);

describe(
  'a component for the pod of a driver',
  {
    skip: KUBECTL === undefined && 'no kubectl on PATH',
  },
  () => {
    const LABEL = { 'sutler.dev/driver': 'true' };
    const base = ['base'];
    const labelled = (kind: string, metadata: object = {}) => {
      const { metadata: own, ...rest } = localDriver(kind);
      return { ...rest, metadata: { ...own, ...metadata } };
    };
    /** A patch that labels the driver. */
    const patches = [
      {
        patch: JSON.stringify({
          apiVersion: 'apps/v1',
          kind: 'StatefulSet',
          metadata: { name: 'local-driver', namespace: 'local-storage', labels: LABEL },
        }),
      },
    ];
    const unlabelled = labelled('StatefulSet', { labels: {} });
    const gatewaysIn = (objects: readonly ManifestObject[], kind: string): number =>
      podOf(objects, kind, 'local-driver').spec.containers.filter(
        ({ name }) => name === 'csi-gateway',
      ).length;
    const fails = (rendered: Rendered, expected: RegExp): void => {
      assert.throws(() => render(rendered), expected);
    };

    for (const [component, kind] of [
      ['gateway', 'Deployment'],
      ['gateway', 'StatefulSet'],
      ['gateway', 'DaemonSet'],
      ['sidecars', 'StatefulSet'],
    ] as const)
      it(`${component} adds one gateway to a ${kind}, and changes nothing else about it`, () => {
        const driver = labelled(kind);
        const objects = render({ resources: base, components: [component], drivers: [driver] });
        assert.equal(gatewaysIn(objects, kind), 1);
        const found = objects.find(({ metadata }) => metadata.name === 'local-driver');
        assert.deepEqual(found?.metadata, driver.metadata);
      });

    it('gateway finds a label that a component before it has set', () => {
      const objects = render({
        resources: base,
        labelling: patches,
        components: ['gateway'],
        drivers: [unlabelled],
      });
      assert.equal(gatewaysIn(objects, 'StatefulSet'), 1);
    });

    it('gateway fails if a patch of the same kustomization sets the label, too late', () =>
      fails(
        { resources: base, components: ['gateway'], patches, drivers: [unlabelled] },
        /nothing selected by .*one workload labelled sutler.dev\/driver=true/,
      ));

    it('sidecars fails if two workloads are labelled', () =>
      fails(
        {
          resources: base,
          components: ['sidecars'],
          drivers: [labelled('DaemonSet'), labelled('DaemonSet', { name: 'another' })],
        },
        /multiple matches for selector .*one workload labelled sutler.dev\/driver=true/,
      ));

    for (const component of ['webhooks', 'drivers', 'capacity', 'driver-lease'])
      it(`${component} fails where it finds no ingest of base`, () =>
        fails({ resources: [], components: [component] }, /no .*Deployment.*sutler-ingest/));

    for (const component of ['gateway', 'driver-lease'])
      it(`${component} puts its objects into the namespace of the driver`, () => {
        const of = (objects: readonly ManifestObject[]) =>
          objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
        const before = of(render({ resources: base }));
        const objects = render({ resources: base, components: [component] });
        const added = objects.filter((object) => !before.includes(of([object])[0] ?? ''));
        assert.ok(added.length > 1);
        for (const { kind, metadata } of added)
          assert.equal(metadata.namespace, 'local-storage', `${kind} ${metadata.name}`);
      });

    it('driver-lease has ingest and jobs use the Lease there', () => {
      const objects = render({ resources: base, components: ['driver-lease'] });
      for (const name of ['sutler-ingest', 'sutler-jobs']) {
        const [container] = podOf(objects, 'Deployment', name).spec.containers;
        assert.ok(container !== undefined);
        assert.equal(startOf(container).flags['leaderElectionNamespace'], 'local-storage');
      }
    });
  },
);
