import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parse } from 'yaml';
import { CHART, HELM, helm, NO_HELM, template, templateText } from '../harness/helm.ts';
import { KUBECTL, render } from '../harness/kustomize.ts';
import { type ManifestObject, readYaml } from '../harness/real-manifests.ts';

type Fields = Readonly<Record<string, unknown>>;
interface Pod extends Fields {
  readonly containers: readonly (Fields & { readonly name: string; readonly env?: unknown })[];
}

const EVERYTHING = {
  topology: true,
  monitoring: { serviceMonitor: true, prometheusRule: true, grafanaDashboard: true },
  networkPolicy: { egress: true },
};
const URLS = { ingest: 'rediss://a:1', jobs: 'rediss://b:1', dashboard: 'rediss://c:1' };

describe('charts/sutler, by helm', { skip: NO_HELM }, () => {
  const podsOf = (values: object): ReadonlyMap<string, Pod> =>
    new Map(
      template(values).flatMap(({ metadata, spec }) => {
        const { template: pod } = (spec ?? {}) as { readonly template?: { readonly spec: Pod } };
        return pod === undefined ? [] : [[metadata.name, pod.spec] as const];
      }),
    );
  const containerOf = (values: object, name: string): Fields => {
    const [container] = podsOf(values).get(`sutler-${name}`)?.containers ?? [];
    assert.ok(container !== undefined, name);
    return container;
  };
  const refuses = (values: object, expected: RegExp): void => {
    assert.throws(() => templateText(values), expected);
  };

  it('passes helm lint', () => {
    assert.match(helm(['lint', '--strict', CHART, '-n', 'sutler']), /0 chart\(s\) failed/);
  });

  it('sets scheduling of every pod', () => {
    const values = {
      priorityClassName: 'system-cluster-critical',
      nodeSelector: { disk: 'fast' },
      tolerations: [{ key: 'storage', operator: 'Exists' }],
      imagePullSecrets: [{ name: 'registry' }],
    };
    for (const [name, pod] of podsOf({ ...values, redis: { mode: 'single' } }))
      for (const [key, value] of Object.entries(values)) assert.deepEqual(pod[key], value, name);
  });

  it('sets image, resources and more variables', () => {
    const resources = { requests: { memory: '1Gi' } };
    const entry = { name: 'SUTLER_STRICT_TOPOLOGY', value: 'true' };
    const values = {
      image: 'here/sutler:1',
      resources: { jobs: resources },
      env: { jobs: [entry] },
    };
    const { image, env, resources: set } = containerOf(values, 'jobs');
    assert.equal(image, 'here/sutler:1');
    assert.deepEqual((set as Fields)['requests'], { ...resources.requests, cpu: '100m' });
    assert.deepEqual((env as readonly unknown[]).at(-1), entry);
  });

  it('makes a Secret of a URL for each process', () => {
    const secrets = template({ redis: { urls: URLS, ca: 'PEM' } }).filter(
      ({ kind }) => kind === 'Secret',
    );
    assert.deepEqual(
      secrets.map(({ stringData }) => stringData),
      [
        {
          'ca.crt': 'PEM',
          'ingest-url': URLS.ingest,
          'jobs-url': URLS.jobs,
          'dashboard-url': URLS.dashboard,
        },
      ],
    );
  });

  it('refuses what it can’t do, with what to write', () => {
    refuses({ redis: { mode: 'cluster' } }, /"cluster" is unknown; write external or single/);
    refuses({ redis: { urls: { ingest: 'rediss://a' } } }, /redis.urls.jobs is missing/);
    refuses({ redis: { mode: 'single', urls: URLS } }, /write redis.mode: external/);
    refuses({ redis: { mode: 'single' }, certManager: true }, /set certManager: false/);
  });

  it('refuses a value that it does not know, and one of another type', () => {
    // In the words of helm 3 and of helm 4.
    refuses(
      { redis: { mod: 'single' } },
      /redis'?: additional propert(y mod is|ies 'mod') not allow/i,
    );
    refuses({ replicas: { jobs: 'many' } }, /replicas[./]jobs'?: (Invalid type|got string)/);
  });

  it('refuses another namespace than sutler', () => {
    assert.throws(() => templateText({}, 'storage'), /install with -n sutler --create-namespace/);
  });
});

describe(
  'charts/sutler beside k8s/',
  { skip: KUBECTL === undefined || HELM === undefined ? 'no kubectl, or no helm' : false },
  () => {
    it('makes the objects of base, drivers, topology, egress and monitoring', () => {
      const [{ drivers }] = readYaml('drivers/drivers.yaml') as readonly [{ drivers: object }];
      assert.deepEqual(
        comparable(template({ ...EVERYTHING, drivers })),
        comparable(
          render({
            resources: ['base', 'egress', 'monitoring'],
            components: ['drivers', 'topology'],
          }),
        ),
      );
    });

    it('makes the objects of overlays/quickstart with redis.mode single', () => {
      assert.deepEqual(
        comparable(template({ redis: { mode: 'single' } })),
        comparable(render({ resources: ['overlays/quickstart'] })),
      );
    });

    it('makes the objects of cert-manager', () => {
      const isForeign = ({ apiVersion }: ManifestObject) =>
        apiVersion.startsWith('cert-manager.io');
      assert.deepEqual(
        comparable(template({ certManager: true }).filter(isForeign)),
        comparable(render({ resources: ['cert-manager'] })),
      );
    });
  },
);

/** Objects by kind and name, without what differs by nature: the namespace, which helm creates, the
 * test's driver, hashes in names, empty fields, and the order of variables and the like. */
function comparable(objects: readonly ManifestObject[]): ReadonlyMap<string, unknown> {
  return new Map(
    objects
      .filter(({ kind, metadata }) => kind !== 'Namespace' && metadata.name !== 'local-driver')
      .map((object) => {
        const text = JSON.stringify(object)
          .replaceAll(/(sutler-redis-users|sutler-drivers)-\w{10}/g, '$1')
          .replaceAll(/"sutler.dev\/drivers":"\w{64}"/g, '')
          .replace('"sutler-secrets-1"', '"sutler-secrets"');
        const plain = withoutEmpty(JSON.parse(text)) as ManifestObject;
        return [`${plain.kind} ${plain.metadata.name}`, plain] as const;
      })
      .toSorted(([a], [b]) => (a < b ? -1 : 1)),
  );
}

function withoutEmpty(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = (value as readonly unknown[]).map(withoutEmpty);
    const isNamed = items.every(
      (each) => typeof each === 'object' && each !== null && 'name' in each,
    );
    const nameOf = (each: unknown): string => JSON.stringify((each as { name: string }).name);
    return isNamed ? items.toSorted((a, b) => nameOf(a).localeCompare(nameOf(b))) : items;
  }
  if (typeof value === 'string' && /^drivers:/m.test(value)) return parse(value);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([key, each]) => [key, withoutEmpty(each)] as const)
      .filter(([, each]) => !['null', '""', '[]', '{}'].includes(JSON.stringify(each))),
  );
}
