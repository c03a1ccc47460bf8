import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { processes } from '#src/processes.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { KUBECTL, localDriver, render, type Rendered } from '../harness/kustomize.ts';
import type { ManifestObject } from '../harness/real-manifests.ts';

interface Container {
  readonly args: readonly string[];
  readonly name: string;
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
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
type Objects = readonly ManifestObject[];

const BASE = ['base'];

/** What kubectl makes of base, a driver and components. */
const build = (...components: readonly string[]): Objects =>
  render({ resources: BASE, components });

function find(objects: Objects, kind: string, name: string): ManifestObject {
  const found = objects.find((object) => object.kind === kind && object.metadata.name === name);
  assert.ok(found !== undefined, `${kind} ${name}`);
  return found;
}

const podOf = (objects: Objects, kind: string, name: string): Pod =>
  (find(objects, kind, name)['spec'] as { readonly template: Pod }).template;

/** A container, with the flags and variables that its process starts with. */
function startOf(pod: Pod, name: string) {
  const container = pod.spec.containers.find((each) => each.name === name);
  assert.ok(container !== undefined, name);
  const [process = '', ...argv] = container.args;
  const env = Object.fromEntries(
    (container.env ?? []).map((each) => [each.name, each.value ?? 'from a field']),
  );
  const parsed = parseFlags(processes[process]?.flags ?? {}, { argv, env });
  assert.ok(parsed.kind === 'run');
  const flags: Readonly<Record<string, unknown>> = parsed.flags;
  const mounted = (volume: string): string =>
    container.volumeMounts?.find((each) => each.name === volume)?.mountPath ?? '';
  return { flags, env, mounted };
}

const processOf = (objects: Objects, name: 'ingest' | 'jobs') =>
  startOf(podOf(objects, 'Deployment', `sutler-${name}`), name);

describe('components of k8s/', { skip: KUBECTL === undefined && 'no kubectl on PATH' }, () => {
  for (const name of ['ingest', 'jobs'] as const) {
    it(`gateway, topology and capacity: ${name} asks the driver’s gateways, and for capacity`, () => {
      const { flags, env } = processOf(build('gateway', 'topology', 'capacity'), name);
      assert.equal(flags['gatewayService'], 'local-storage/sutler-gateway');
      assert.equal(flags['enableCapacity'], true);
      assert.equal('NAMESPACE' in env, name === 'ingest');
      assert.equal('POD_NAME' in env, name === 'ingest');
    });

    it(`drivers: ${name} reads a file of the ConfigMap that it mounts, whose name changes with it`, () => {
      const objects = build('drivers');
      const { flags, mounted } = processOf(objects, name);
      assert.equal(flags['driverConfig'], `${mounted('drivers')}/drivers.yaml`);
      const { volumes = [] } = podOf(objects, 'Deployment', `sutler-${name}`).spec;
      const configMap = volumes.find((each) => each.name === 'drivers')?.configMap?.name ?? '';
      assert.match(configMap, /^sutler-drivers-\w{10}$/);
      assert.ok('drivers.yaml' in (find(objects, 'ConfigMap', configMap)['data'] as object));
    });

    it(`driver-lease: ${name} uses the Lease beside the driver`, () => {
      const { flags } = processOf(build('driver-lease'), name);
      assert.equal(flags['leaderElectionNamespace'], 'local-storage');
    });
  }

  it('gateway: the driver’s pod gets a gateway that the Service selects', () => {
    const objects = build('gateway');
    const pod = podOf(objects, 'DaemonSet', 'local-driver');
    assert.equal(startOf(pod, 'csi-gateway').flags['csiAddress'], 'unix:///csi/csi.sock');
    const service = find(objects, 'Service', 'sutler-gateway');
    assert.equal(service.metadata.namespace, 'local-storage');
    const { selector } = service['spec'] as { readonly selector: Record<string, string> };
    assert.deepEqual({ ...pod.metadata.labels, ...selector }, pod.metadata.labels);
  });

  it('webhooks: ingest reads certificate and token where their Secrets are mounted', () => {
    const { flags, mounted } = processOf(build('webhooks'), 'ingest');
    assert.equal(flags['eventSource'], 'both');
    for (const server of ['webhook', 'admission']) {
      assert.equal(flags[`${server}TlsCert`], `${mounted('webhooks-tls')}/tls.crt`);
      assert.equal(flags[`${server}TlsKey`], `${mounted('webhooks-tls')}/tls.key`);
    }
    assert.deepEqual(flags['webhookTokenFile'], `${mounted('webhook-token')}/token`);
  });

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
        metadata: {
          name: 'local-driver',
          namespace: 'local-storage',
          labels: { 'sutler.dev/driver': 'true' },
        },
      }),
    },
  ];
  const unlabelled = labelled('StatefulSet', { labels: {} });
  const gatewaysIn = (objects: Objects, kind: string): number =>
    podOf(objects, kind, 'local-driver').spec.containers.filter(
      ({ name }) => name === 'csi-gateway',
    ).length;

  for (const [component, kind] of [
    ['gateway', 'Deployment'],
    ['gateway', 'StatefulSet'],
    ['gateway', 'DaemonSet'],
    ['sidecars', 'StatefulSet'],
  ] as const)
    it(`${component} adds one gateway to a ${kind}, and changes nothing else about it`, () => {
      const driver = labelled(kind);
      const objects = render({ resources: BASE, components: [component], drivers: [driver] });
      assert.equal(gatewaysIn(objects, kind), 1);
      assert.deepEqual(find(objects, kind, 'local-driver').metadata, driver.metadata);
    });

  it('gateway finds a label that a component before it has set', () => {
    const own = { labelling: patches, drivers: [unlabelled] };
    const objects = render({ resources: BASE, components: ['gateway'], ...own });
    assert.equal(gatewaysIn(objects, 'StatefulSet'), 1);
  });

  const refused: Readonly<Record<string, readonly [Rendered, RegExp]>> = {
    'gateway, if a patch of the same kustomization sets the label, too late': [
      { resources: BASE, components: ['gateway'], patches, drivers: [unlabelled] },
      /nothing selected by .*one workload labelled sutler.dev\/driver=true/,
    ],
    'sidecars, if two workloads are labelled': [
      {
        resources: BASE,
        components: ['sidecars'],
        drivers: [labelled('DaemonSet'), labelled('DaemonSet', { name: 'another' })],
      },
      /multiple matches for selector .*one workload labelled sutler.dev\/driver=true/,
    ],
    ...Object.fromEntries(
      ['webhooks', 'drivers', 'capacity', 'driver-lease'].map((component) => [
        `${component}, without ingest of base`,
        [{ components: [component] }, /no .*Deployment.*sutler-ingest/] as const,
      ]),
    ),
  };
  for (const [what, [rendered, expected]] of Object.entries(refused))
    it(`refuse ${what}`, () => assert.throws(() => render(rendered), expected));

  for (const component of ['gateway', 'driver-lease'])
    it(`${component} puts its objects into the namespace of the driver`, () => {
      const nameOf = ({ kind, metadata }: ManifestObject) => `${kind} ${metadata.name}`;
      const before = build().map(nameOf);
      const added = build(component).filter((object) => !before.includes(nameOf(object)));
      assert.ok(added.length > 1);
      for (const object of added)
        assert.equal(object.metadata.namespace, 'local-storage', nameOf(object));
    });
});
