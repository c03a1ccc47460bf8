import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  at,
  type CallOptions,
  type Connection,
  listAt,
  type Reply,
  textAt,
} from '../conformance/connection.ts';
import { VOLUMES, paths, secret, volume } from '../conformance/objects.ts';
import { KUBECTL, render } from '../harness/kustomize.ts';
import { NO_HELM, templateText } from '../harness/helm.ts';
import { makeSecrets } from '../harness/make-secrets.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import {
  collectionOf,
  K8S,
  type Manifest,
  manifestFolders,
  type ManifestObject,
  pathOf,
  readManifests,
  readYaml,
} from '../harness/real-manifests.ts';
import { runKubectl } from '../harness/sandbox-kubectl.ts';

const NAMESPACE = 'sutler';
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const SAMPLE_DRIVER = `${DEPLOYMENTS}/sutler-sample-driver`;

/** Kinds of others. Their definitions here keep every field of `spec`. */
const FOREIGN_KINDS: readonly (readonly [group: string, version: string, kind: string])[] = [
  ['sources.knative.dev', 'v1', 'ApiServerSource'],
  ['monitoring.coreos.com', 'v1', 'ServiceMonitor'],
  ['monitoring.coreos.com', 'v1', 'PodMonitor'],
  ['monitoring.coreos.com', 'v1', 'PrometheusRule'],
  ['keda.sh', 'v1alpha1', 'ScaledObject'],
  ['argoproj.io', 'v1alpha1', 'EventSource'],
  ['argoproj.io', 'v1alpha1', 'Sensor'],
];

const open = realControlPlane(process.env);

describe('k8s/ on kube-apiserver', () => {
  let plane: RealControlPlane;
  let api: Connection;
  before(async () => {
    plane = await open();
    ({ api } = plane);
    await api.create('/api/v1/namespaces', { metadata: { name: 'argo-events' } });
    for (const kind of FOREIGN_KINDS) await define(api, ...kind);
    for (const manifest of inOrder(whole())) await apply(api, manifest);
  });
  after(() => plane.close());

  it('is accepted unchanged, without unknown fields', async () => {
    for (const { object } of whole()) await api.read(pathOf(object));
  });

  for (const [name, file] of [
    ['the gateway', 'gateway/sidecar.yaml'],
    ['gateway, ingest and jobs', 'sidecars/sidecars.yaml'],
  ] as const) {
    it(`adds ${name} to the pod of a driver, which the restricted profile admits`, async () => {
      const [patch] = readYaml(file);
      const body = { spec: at(patch, 'spec') };
      const query = { dryRun: 'All', fieldValidation: 'Strict' };
      const reply = await api.call('PATCH', SAMPLE_DRIVER, {
        body,
        contentType: 'application/strategic-merge-patch+json',
        query,
      });
      assert.equal(reply.status, 200, reply.text);
      const names = listAt(reply.body, 'spec', 'template', 'spec', 'containers').map((container) =>
        textAt(container, 'name'),
      );
      assert.ok(names.includes('driver') && names.includes('csi-gateway'), names.join());
      await admitted(api, at(reply.body, 'spec', 'template'));
    });
  }

  for (const { file, object } of readManifests('base').filter(
    (manifest) => manifest.object.kind === 'Deployment',
  )) {
    it(`has pods that the restricted profile admits: ${file}`, async () => {
      await admitted(api, at(await api.read(pathOf(object)), 'spec', 'template'));
    });
  }

  describe('by kubectl', { skip: KUBECTL === undefined && 'no kubectl on PATH' }, () => {
    let cacheDir: string;
    before(async () => {
      cacheDir = await mkdtemp(join(tmpdir(), 'sutler-kubectl-'));
      // That of the file has no version in the name of its image, and a Job can't be changed.
      const path = `/apis/batch/v1/namespaces/${NAMESPACE}/jobs/sutler-secrets`;
      isAllowed(await api.call('DELETE', path, { query: { propagationPolicy: 'Background' } }));
      await api.until(path, ({ status }) => status === 404);
    });
    after(() => rm(cacheDir, { recursive: true }));
    const tried = async (args: readonly string[], input?: string): Promise<void> => {
      const program = { path: KUBECTL ?? '', kubeconfig: plane.kubeconfig, cacheDir };
      const dry = ['--server-side', '--force-conflicts', '--dry-run=server', '--validate=strict'];
      const { code, stderr } = await runKubectl(program, ['apply', ...dry, ...args], input);
      assert.equal(code, 0, stderr);
      // What the restricted profile refuses about a pod of a Deployment is a warning.
      assert.equal(stderr, '');
    };

    it('overlays/quickstart is accepted as it is', () =>
      tried(['-k', join(K8S, 'overlays/quickstart')]));

    for (const values of [
      { redis: { mode: 'single' } },
      {
        redis: { urls: { ingest: 'rediss://a', jobs: 'rediss://b', dashboard: 'rediss://c' } },
        networkPolicy: { egress: true },
        monitoring: { serviceMonitor: true, prometheusRule: true, grafanaDashboard: true },
        topology: true,
        priorityClassName: 'system-cluster-critical',
        tolerations: [{ key: 'storage', operator: 'Exists' }],
      },
    ])
      it(
        `the chart is accepted with ${Object.keys(values).join()} ${JSON.stringify(values.redis)}`,
        { skip: NO_HELM },
        () => tried(['-f', '-'], templateText(values)),
      );
  });

  const as = (account: string): CallOptions => ({
    impersonate: {
      user: `system:serviceaccount:${NAMESPACE}:${account}`,
      groups: [
        'system:serviceaccounts',
        `system:serviceaccounts:${NAMESPACE}`,
        'system:authenticated',
      ],
    },
  });
  const isForbidden = ({ status, text }: Reply): void => assert.equal(status, 403, text);
  const isAllowed = ({ status, text }: Reply): void => assert.ok(status < 300, text);

  it('lets the Job of the quickstart make the Secrets, and read none but its authority', async () => {
    const account = `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/sutler-secrets/token`;
    const issued = await api.call('POST', account, { body: { spec: {} } });
    const token = textAt(issued.body, 'status', 'token');
    const lines = await makeSecrets({ url: plane.url, token, ca: plane.tls.ca });
    assert.equal(lines.filter((line) => line.endsWith(': created')).length, 6, lines.join('\n'));
    const { secrets } = paths(NAMESPACE);
    isForbidden(await api.call('GET', `${secrets}/sutler-redis`, as('sutler-secrets')));
    isAllowed(await api.call('GET', `${secrets}/sutler-gateway-authority`, as('sutler-secrets')));
  });

  it('lets no account read a secret by default', async () => {
    await api.create(paths(NAMESPACE).secrets, secret('driver-secret'));
    for (const account of ['sutler-ingest', 'sutler-jobs', 'sutler-dashboard'])
      for (const namespace of [NAMESPACE, 'default']) {
        const { secrets } = paths(namespace);
        isForbidden(await api.call('GET', `${secrets}/driver-secret`, as(account)));
        isForbidden(await api.call('GET', secrets, as(account)));
      }
  });

  it('lets jobs read the secrets that secrets-by-name names, and no others', async () => {
    const home = 'storage-secrets';
    const { secrets } = paths(home);
    const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: home } };
    await apply(api, { file: 'here', object });
    for (const manifest of readManifests('secrets-by-name')) await apply(api, manifest);
    for (const name of ['driver-credentials', 'other']) await api.create(secrets, secret(name));
    isAllowed(await api.call('GET', `${secrets}/driver-credentials`, as('sutler-jobs')));
    isForbidden(await api.call('GET', `${secrets}/other`, as('sutler-jobs')));
    isForbidden(await api.call('GET', secrets, as('sutler-jobs')));
    isForbidden(await api.call('GET', `${secrets}/driver-credentials`, as('sutler-ingest')));
    const query = { fieldSelector: 'metadata.name=other' };
    isForbidden(await api.call('GET', secrets, { ...as('sutler-ingest'), query }));
    const named = { fieldSelector: 'metadata.name=driver-credentials' };
    isAllowed(await api.call('GET', secrets, { ...as('sutler-ingest'), query: named }));
  });

  it('lets the sources of Knative and Argo Events watch claims and volumes, and write none', async () => {
    for (const [namespace, account] of [
      [NAMESPACE, 'sutler-event-source'],
      ['argo-events', 'sutler-argo-event-source'],
    ] as const) {
      const user = `system:serviceaccount:${namespace}:${account}`;
      const source = { impersonate: { user, groups: ['system:authenticated'] } };
      for (const path of ['/api/v1/persistentvolumeclaims', VOLUMES]) {
        const query = { watch: true, timeoutSeconds: 1 };
        isAllowed(await api.call('GET', path, { ...source, query }));
        isAllowed(await api.call('GET', path, source));
      }
      isForbidden(await api.call('POST', paths('default').claims, { ...source, body: {} }));
      isForbidden(await api.call('POST', VOLUMES, { ...source, body: volume('made-by-source') }));
    }
  });

  it('refuses the policy of admission/ until it has the addresses of the API servers', async () => {
    const policies = `/apis/networking.k8s.io/v1/namespaces/${NAMESPACE}/networkpolicies`;
    const [manifest] = readManifests('admission').filter(isPolicy);
    const asIs = JSON.stringify(manifest?.object);
    const refused = await api.call('POST', policies, { body: JSON.parse(asIs) as object });
    assert.equal(refused.status, 422, refused.text);
    assert.match(refused.text, /ipBlock.cidr: Invalid value/);
    const written = asIs.replace('ADDRESSES-OF-THE-API-SERVERS', '10.0.0.0/28');
    isAllowed(await api.call('POST', policies, { body: JSON.parse(written) as object }));
  });
});

describe(
  'a driver that needs hostPath, in a namespace of its own, on kube-apiserver',
  { skip: KUBECTL === undefined && 'no kubectl on PATH' },
  () => {
    const HOME = 'local-storage';
    let plane: RealControlPlane;
    let api: Connection;
    let objects: readonly ManifestObject[];
    before(async () => {
      plane = await open();
      ({ api } = plane);
      objects = render({ resources: ['base'], components: ['gateway', 'driver-lease'] });
      const metadata = { name: HOME };
      const manifests = [{ apiVersion: 'v1', kind: 'Namespace', metadata }, ...objects];
      const inFile = manifests.map((object) => ({ file: 'rendered', object }));
      for (const manifest of inOrder(inFile)) await apply(api, manifest);
    });
    after(async () => {
      await plane.close();
    });
    const templateOf = (): unknown =>
      at(
        objects.find(({ kind }) => kind === 'DaemonSet'),
        'spec',
        'template',
      );

    it('gets its pod, with a gateway', async () => {
      const reply = await tryPod(api, templateOf(), HOME);
      assert.equal(reply.status, 201, reply.text);
      const names = listAt(reply.body, 'spec', 'containers').map((each) => textAt(each, 'name'));
      assert.deepEqual(names.toSorted(), ['csi-gateway', 'driver']);
    });

    it('would be refused in the namespace sutler, which enforces restricted', async () => {
      const reply = await tryPod(api, templateOf(), NAMESPACE);
      assert.equal(reply.status, 403, reply.text);
      assert.match(reply.text, /restricted volume types .*hostPath/);
    });
  },
);

/** Creates the definition of a kind, and waits until the server serves it. */
async function define(
  api: Connection,
  group: string,
  version: string,
  kind: string,
): Promise<void> {
  const plural = `${kind.toLowerCase()}s`;
  const spec = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const schema = { openAPIV3Schema: { type: 'object', properties: { spec } } };
  await api.create('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { plural, kind },
      versions: [{ name: version, served: true, storage: true, schema }],
    },
  });
  await api.until(`/apis/${group}/${version}/${plural}`, ({ status }) => status === 200);
}

/** Every object of k8s/ that is no patch. */
function whole(): readonly Manifest[] {
  return (
    manifestFolders()
      // Its objects are of kinds that only clusters with cert-manager have.
      .filter((folder) => folder !== 'cert-manager')
      // It is tried as a whole.
      .filter((folder) => folder !== 'overlays/quickstart')
      // What these grant, an administrator chooses.
      .filter((folder) => !folder.startsWith('secrets-by'))
      .flatMap(readManifests)
      .filter(({ object }) => object.metadata.name !== 'any')
      // An administrator writes addresses into it.
      .filter((manifest) => !(manifest.file.startsWith('admission/') && isPolicy(manifest)))
  );
}

function isPolicy({ object }: Manifest): boolean {
  return object.kind === 'NetworkPolicy';
}

/** Namespaces and accounts first: the server refuses objects in a missing namespace. */
function inOrder(manifests: readonly Manifest[]): readonly Manifest[] {
  const rank = ({ object: { kind } }: Manifest): number =>
    kind === 'Namespace' ? 0 : kind === 'ServiceAccount' ? 1 : 2;
  return manifests.toSorted((a, b) => rank(a) - rank(b));
}

async function apply(api: Connection, { file, object }: Manifest): Promise<void> {
  const collection = collectionOf(object, NAMESPACE);
  const check = await api.call('POST', collection, {
    body: object,
    query: { fieldValidation: 'Strict', dryRun: 'All' },
  });
  assert.equal(check.status, 201, `${file}: ${check.text}`);
  await api.create(collection, object);
}

/** Creates a pod of that template as a dry run: admission plug-ins check only pods. */
async function admitted(api: Connection, template: unknown): Promise<void> {
  const reply = await tryPod(api, template, NAMESPACE);
  assert.equal(reply.status, 201, reply.text);
}

function tryPod(api: Connection, template: unknown, namespace: string): Promise<Reply> {
  const spec = at(template, 'spec');
  const body = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'trial' }, spec };
  const query = { dryRun: 'All' };
  return api.call('POST', `/api/v1/namespaces/${namespace}/pods`, { body, query });
}
