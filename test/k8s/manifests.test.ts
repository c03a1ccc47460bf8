import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import type { Process } from '#src/dispatch.ts';
import { readEvents } from '#src/webhooks/read-events.ts';
import { processes as shipped } from '#src/processes.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { processes as withSandbox } from '../../sandbox/processes.ts';
import { ARGO, CLAIM_NOTICE, JSON_HEADERS, VOLUME, VOLUME_NOTICE } from '../webhooks/fixtures.ts';
import {
  manifestFiles,
  manifestFolders,
  type ManifestObject,
  readManifests,
  readYaml,
} from '../harness/real-manifests.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

interface Image {
  /** Stage of the Dockerfile that builds it. */
  readonly target: string;
  /** The file that the stage starts, in the image and in this folder. */
  readonly program: string;
  readonly processes: Readonly<Record<string, Process>>;
}

/** The images that the manifests may name, apart from Redis. */
const IMAGES: ReadonlyMap<string, Image> = new Map([
  ['sutler', { target: 'sutler', program: 'dist/cli.js', processes: shipped }],
  [
    'sutler-sample-driver',
    { target: 'sample-driver', program: 'dist-dev/sandbox/cli.js', processes: withSandbox },
  ],
]);

interface Port {
  readonly name: string;
  readonly containerPort: number;
}
interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
}
interface Container {
  readonly name: string;
  readonly image: string;
  readonly args: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: { readonly secretKeyRef?: object };
  }[];
  readonly ports?: readonly Port[];
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}
interface Pod {
  readonly terminationGracePeriodSeconds?: number;
  readonly containers: readonly Container[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly secret?: { readonly secretName: string; readonly items?: readonly object[] };
  }[];
}
interface Workload {
  readonly spec: {
    readonly template: {
      readonly metadata?: { readonly labels?: Readonly<Record<string, string>> };
      readonly spec: Pod;
    };
  };
}
interface ServiceObject {
  readonly spec: {
    readonly selector: Readonly<Record<string, string>>;
    readonly ports: readonly { readonly targetPort: string; readonly port: number }[];
  };
}
interface Hook {
  readonly clientConfig: {
    readonly service: Readonly<Record<'namespace' | 'name' | 'path', string>> & {
      readonly port: number;
    };
  };
  readonly failurePolicy: string;
  readonly timeoutSeconds: number;
  readonly sideEffects: string;
}
/** A parameter of a trigger of Argo Events. */
interface Parameter {
  readonly src: Readonly<Record<'dependencyName' | 'dataKey', string>> & {
    readonly useRawData?: boolean;
  };
  readonly dest: string;
}
interface Sensor {
  readonly triggers: readonly {
    readonly template: {
      readonly name: string;
      readonly http: { readonly payload: readonly Parameter[] };
    };
  }[];
}
interface Kustomization {
  readonly resources?: readonly string[];
  readonly patches?: readonly {
    readonly path?: string;
    readonly patch?: string;
    readonly target?: object;
  }[];
}

/** The container of the Redis for trying. */
const TRIAL = 'overlays/quickstart/redis.yaml sutler-redis/redis';
const manifests = manifestFolders().flatMap(readManifests);
const workloads = manifests
  .filter(({ object }) => ['Deployment', 'StatefulSet', 'DaemonSet'].includes(object.kind))
  .map(({ file, object }) => ({
    file,
    name: object.metadata.name,
    ...(object as unknown as Workload),
  }));
const pods = workloads.map(({ file, name, spec }) => ({
  title: `${file} ${name}`,
  name,
  pod: spec.template.spec,
  labels: spec.template.metadata?.labels ?? {},
}));
const containers = pods.flatMap(({ title, pod }) =>
  pod.containers.map((container) => ({ title: `${title}/${container.name}`, pod, container })),
);
const ours = containers.filter(({ container }) => IMAGES.has(container.image));
/** The stages of the Dockerfile, in its order: name and lines. */
const stages = readFileSync(join(ROOT, 'Dockerfile'), 'utf8')
  .split(/^(?=FROM )/m)
  .slice(1)
  .map((text) => ({ name: /^FROM \S+ AS (\S+)$/m.exec(text)?.[1], text }));
const redisUsersFile = readFileSync(join(ROOT, 'k8s/redis/users.acl'), 'utf8')
  .trim()
  .split('\n')
  .filter((line) => line !== 'user default off');
const redisUserNames = redisUsersFile.map((line) => line.split(' ')[1]);
/** The commands of a user, without those of its selectors. */
const commandsOf = (user: string): ReadonlySet<string> => {
  const line = redisUsersFile.find((each) => each.startsWith(`user ${user} `)) ?? '';
  const words = line.replaceAll(/ \([^)]*\)/g, '').split(' ');
  return new Set(words.filter((word) => word.startsWith('+') && !word.startsWith('+eval')));
};
const portsOf = (pod: Pod): readonly string[] =>
  pod.containers.flatMap((container) => container.ports?.map(({ name }) => name) ?? []);
/** The ports that the component of a folder adds to the workloads of these names. */
const portsPatched = (folder: string, names: readonly string[]): readonly string[] => {
  const [kustomization] = readYaml(`${folder}/kustomization.yaml`) as readonly Kustomization[];
  return (kustomization?.patches ?? []).flatMap(({ patch, target }) => {
    if (patch === undefined || target !== undefined) return [];
    const { metadata, spec } = parse(patch) as Workload & ManifestObject;
    return names.includes(metadata.name) ? portsOf(spec.template.spec) : [];
  });
};
const ofKind = (kind: string) => manifests.filter(({ object }) => object.kind === kind);
const portOf = (container: Container, name: string): number | undefined =>
  container.ports?.find((port) => port.name === name)?.containerPort;

/** The Service behind which a container finds its gateways. */
const serviceOf = ({ env }: Container): string | undefined =>
  env?.find(({ name }) => name === 'SUTLER_GATEWAY_SERVICE')?.value;

/** Values of a container's flags, parsed as the process itself does. */
function flagsOf({ args, image, env = [] }: Container): Readonly<Record<string, unknown>> {
  const [name = '', ...argv] = args;
  const process = IMAGES.get(image)?.processes[name];
  assert.ok(process !== undefined, `the image ${image} has no process "${name}"`);
  const variables = Object.fromEntries(env.map(({ name: each, value }) => [each, value]));
  const parsed = parseFlags(process.flags, { argv, env: variables });
  assert.ok(parsed.kind === 'run');
  return parsed.flags;
}

describe('k8s/', () => {
  for (const folder of manifestFolders()) {
    it(`${folder}/kustomization.yaml names every file of its folder, and no other`, () => {
      const [kustomization] = readYaml(`${folder}/kustomization.yaml`) as readonly Kustomization[];
      const patches = (kustomization?.patches ?? []).flatMap(({ path }) =>
        path === undefined ? [] : [path],
      );
      const named = [...(kustomization?.resources ?? []), ...patches].filter(
        (path) => !path.startsWith('../'),
      );
      assert.deepEqual(named.toSorted(), manifestFiles(folder).toSorted());
    });
  }

  for (const [image, { target, program }] of IMAGES)
    it(`has images that the Dockerfile builds: ${image} starts a compiled program`, () => {
      const stage = stages.find(({ name }) => name === target);
      assert.match(stage?.text ?? '', new RegExp(`^ENTRYPOINT .*"/app/${program}"\\]$`, 'm'));
      assert.ok(existsSync(join(ROOT, program)), program);
    });

  for (const { title, container, pod } of ours) {
    describe(title, () => {
      it('has arguments that its process accepts', () => {
        flagsOf(container);
      });

      it('serves health and metrics at the port that its probes name', () => {
        const endpoint = flagsOf(container)['httpEndpoint'];
        const { livenessProbe, readinessProbe, args } = container;
        if (args[0] === 'sandbox-driver') return assert.equal(endpoint, '');
        const { path, port = '' } = livenessProbe?.httpGet ?? {};
        assert.equal(path, '/healthz');
        assert.deepEqual(readinessProbe?.httpGet, { path: '/readyz', port });
        assert.equal(endpoint, `:${portOf(container, port)}`);
      });

      it('has a grace period shorter than that of its pod', () => {
        const graceMs = flagsOf(container)['gracePeriodMs'];
        if (typeof graceMs === 'number')
          assert.ok(graceMs < (pod.terminationGracePeriodSeconds ?? 30) * 1000);
      });
    });
  }

  it('the gateway and its callers have certificates with the names that each expects', () => {
    const issued = new Map(
      ofKind('Certificate').map(({ object }) => {
        const { secretName, dnsNames } = object['spec'] as {
          readonly secretName: string;
          readonly dnsNames?: readonly string[];
        };
        return [secretName, dnsNames ?? []] as const;
      }),
    );
    const namesOf = (container: Container, pod: Pod, flag: string): readonly string[] => {
      const path = String(flagsOf(container)[flag]);
      const mount = container.volumeMounts?.find(({ mountPath }) =>
        path.startsWith(`${mountPath}/`),
      );
      const volume = pod.volumes?.find(({ name }) => name === mount?.name);
      assert.equal(path, `${mount?.mountPath}/tls.crt`);
      const names = issued.get(volume?.secret?.secretName ?? '');
      assert.ok(names !== undefined, `no certificate fills the Secret of ${path}`);
      return names;
    };
    const gateway = containers.find(({ title }) => title.startsWith('gateway/'));
    assert.ok(gateway !== undefined);
    const allowed = flagsOf(gateway.container)['tlsAllowedNames'] as readonly string[];
    const served = namesOf(gateway.container, gateway.pod, 'tlsCert');
    const callers = ours.filter(
      ({ title, container }) => title.startsWith('base/') && 'gateway' in flagsOf(container),
    );
    assert.deepEqual(
      callers
        .map(({ container, pod }) => `DNS:${namesOf(container, pod, 'gatewayTlsCert').join()}`)
        .toSorted(),
      allowed.toSorted(),
    );
    for (const { container } of callers) {
      const [namespace, name] = serviceOf(container)?.split('/') ?? [];
      assert.ok(served.includes(`${name}.${namespace}.svc`), name);
    }
  });

  it('a gateway in the same pod is called at the socket where it listens', () => {
    const inPod = ours
      .filter(({ title }) => title.startsWith('sidecars/'))
      .map(({ container }) => flagsOf(container));
    const [listens] = inPod.flatMap((flags) => flags['listen'] ?? []);
    const calls = inPod.flatMap((flags) => flags['gateway'] ?? []);
    assert.deepEqual(calls, [listens, listens]);
  });

  for (const { file, object } of ofKind('Service')) {
    it(`${file} Service ${object.metadata.name} selects a pod that has its ports`, () => {
      const { selector, ports } = (object as unknown as ServiceObject).spec;
      const selected = pods.filter(({ labels }) =>
        Object.entries(selector).every(([key, value]) => labels[key] === value),
      );
      assert.ok(selected.length > 0, 'selects nothing');
      const names = new Set([
        ...selected.flatMap(({ pod }) => portsOf(pod)),
        ...portsPatched(
          dirname(file),
          selected.map(({ name }) => name),
        ),
      ]);
      for (const { targetPort } of ports) assert.ok(names.has(targetPort), targetPort);
    });
  }

  describe('notices', () => {
    const service = ofKind('Service').find(
      ({ object }) => object.metadata.name === 'sutler-webhooks',
    )?.object as unknown as ServiceObject;
    const portNamed = (name: string): number | undefined =>
      service.spec.ports.find(({ targetPort }) => targetPort === name)?.port;
    const hooks = ofKind('ValidatingWebhookConfiguration').flatMap(
      ({ object }) => object['webhooks'] as readonly Hook[],
    );
    const certified = ofKind('Certificate')
      .filter(({ object }) => object.metadata.name === 'sutler-webhooks')
      .flatMap(({ object }) => (object['spec'] as { dnsNames: readonly string[] }).dnsNames);

    it('are sent to the address of the Service, which its certificate names', () => {
      const urls = [...ofKind('ApiServerSource'), ...ofKind('Sensor')].flatMap(({ object }) =>
        [...JSON.stringify(object).matchAll(/https:[^"]*/g)].map(([url]) => new URL(url)),
      );
      assert.equal(urls.length, 3);
      for (const { hostname, port, pathname } of urls) {
        assert.ok(certified.includes(hostname), hostname);
        assert.deepEqual([Number(port), pathname], [portNamed('events'), '/events']);
      }
    });

    it('are sent by the API server to the admission port, and never stop a write', () => {
      assert.equal(hooks.length, 2);
      for (const { clientConfig, failurePolicy, timeoutSeconds, sideEffects } of hooks) {
        const { namespace, name, port, path } = clientConfig.service;
        assert.ok(certified.includes(`${name}.${namespace}.svc`));
        assert.deepEqual([port, path], [portNamed('admission'), '/admission']);
        // A webhook that fails or is slow is ignored.
        assert.deepEqual(
          [failurePolicy, timeoutSeconds, sideEffects],
          ['Ignore', 1, 'NoneOnDryRun'],
        );
      }
    });

    it('of Argo Events are built of fields that ingest reads, each with a destination', () => {
      const notices = ofKind('Sensor').flatMap(({ object }) =>
        (object['spec'] as Sensor).triggers.map(({ template: { name, http } }) => {
          const isClaim = name === 'claims';
          const event: Readonly<Record<string, unknown>> = isClaim
            ? ARGO
            : { ...ARGO, body: VOLUME, resource: 'persistentvolumes' };
          // As pkg/sensors/triggers/params.go, ConstructPayload, for keys without a path.
          const body = Object.fromEntries(
            http.payload.map(({ src: { dependencyName, dataKey, useRawData = false }, dest }) => {
              assert.equal(dependencyName, name);
              const value = event[dataKey];
              assert.ok(value !== undefined && dest !== '', `${dataKey} to ${dest}`);
              const isText = typeof value === 'string' || useRawData;
              return [dest, isText ? value : JSON.stringify(value)];
            }),
          );
          const bytes = Buffer.from(JSON.stringify(body));
          const [read] = readEvents(JSON_HEADERS, bytes);
          assert.ok(read !== undefined && 'verdict' in read);
          return read.verdict;
        }),
      );
      assert.deepEqual(notices, [CLAIM_NOTICE, VOLUME_NOTICE]);
    });
  });

  it('grants no account a wildcard', () => {
    for (const { object } of [...ofKind('Role'), ...ofKind('ClusterRole')])
      assert.ok(!JSON.stringify(object['rules']).includes('*'), object.metadata.name);
  });

  it('each process logs in to Redis as its own user, with TLS', () => {
    const withRedis = ours.filter(({ container }) => 'redisUrl' in flagsOf(container));
    assert.ok(withRedis.length >= 5);
    for (const { title, container, pod } of withRedis) {
      const env = new Map(container.env?.map((entry) => [entry.name, entry]));
      const name = container.args[0];
      assert.deepEqual(
        env.get('REDIS_URL')?.valueFrom?.secretKeyRef,
        { name: 'sutler-redis', key: `${name}-url` },
        title,
      );
      const path = env.get(`SUTLER_REDIS_TLS_CA`)?.value ?? '';
      const mount = container.volumeMounts?.find(({ mountPath }) => path === `${mountPath}/ca.crt`);
      const volume = pod.volumes?.find((entry) => entry.name === mount?.name);
      assert.deepEqual(volume?.secret?.items, [{ key: 'ca.crt', path: 'ca.crt' }], title);
      assert.ok(redisUserNames.includes(`sutler-${name}`));
    }
  });

  it('gives the quickstart’s Redis a password for each user, of the Secret that the Job makes', () => {
    const redis = containers.find(({ title }) => title === TRIAL)?.container;
    const passwords = (redis?.env ?? []).filter(({ name }) => name.endsWith('_PASSWORD'));
    assert.equal(passwords.length, 5);
    for (const { name, valueFrom } of passwords) {
      const user = name.replace('_PASSWORD', '').toLowerCase();
      assert.ok(redis?.args.join(' ').includes(`s/^user sutler-${user} on/& >$${name}/`));
      assert.ok(redisUserNames.includes(`sutler-${user}`));
      const ref = { name: 'sutler-redis', key: `${user}-password` };
      assert.deepEqual(valueFrom?.secretKeyRef, ref);
    }
  });

  it('gives sutler-all the commands of sutler-ingest and sutler-jobs together', () => {
    const parts = [...commandsOf('sutler-ingest'), ...commandsOf('sutler-jobs')];
    assert.deepEqual([...commandsOf('sutler-all')].toSorted(), [...new Set(parts)].toSorted());
  });

  it('gives no user of Redis a password, and every user only keys of the prefix', () => {
    for (const line of redisUsersFile) {
      assert.doesNotMatch(line, / [>#]|nopass|allkeys|\+@/);
      for (const [, pattern = ''] of line.matchAll(/(?:^| |\()(?:%R)?~(\S+?)\)?(?= |$)/g))
        assert.ok(pattern.startsWith('{csi}:'), pattern);
    }
  });
});
