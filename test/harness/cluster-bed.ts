import assert from 'node:assert/strict';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, ClaimSpec } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { Host } from '#src/runtime/process.ts';
import { makeFolder } from './csi-folder.ts';
import { assertNothingDenied, redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { runMain, type Running } from './run-main.ts';
import { openSandboxCluster, type SandboxCluster } from './sandbox-cluster.ts';

/** What each bed has. */
export interface BedParts {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly folder: Awaited<ReturnType<typeof makeFolder>>;
  readonly closers: Closers;
}

/** Starts a Redis with the users of k8s/redis, and a cluster with a volume binder.
 * @param settings     of the redis-server
 * @param openCluster  absent: starts the sandbox's */
export async function openParts(
  settings: readonly string[] = [],
  openCluster: () => Promise<SandboxCluster> = () => openSandboxCluster({ binder: true }),
): Promise<BedParts> {
  const closers = new Closers();
  const folder = await makeFolder();
  closers.add('folder', () => folder.remove());
  const redis = await startTestRedis({ settings: [...redisUsers(), ...settings] });
  closers.add('Redis', () => redis.close());
  closers.add('least rights', () => assertNothingDenied(redis.redis));
  const cluster = await openCluster();
  closers.add('cluster', () => cluster.close());
  return { redis, cluster, kube: await cluster.client(), folder, closers };
}

/** The parts, and the flags with which the test starts ingest and jobs, each as its user. */
export class ClusterBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  protected readonly folder: BedParts['folder'];
  protected readonly closers: Closers;
  /** Of both processes. */
  protected readonly argv: readonly string[];
  protected readonly env: Host['env'];
  readonly #jobsFlags: readonly string[];

  constructor(
    parts: BedParts,
    o: {
      readonly flags: readonly string[];
      readonly jobsFlags?: readonly string[];
      readonly env?: Host['env'];
    },
  ) {
    this.redis = parts.redis;
    this.cluster = parts.cluster;
    this.kube = parts.kube;
    this.folder = parts.folder;
    this.closers = parts.closers;
    const { kubeconfig } = parts.cluster;
    this.argv = [`--kubeconfig=${kubeconfig}`, '--http-endpoint=127.0.0.1:0', ...o.flags];
    this.#jobsFlags = ['--retry-interval-start=50ms', ...(o.jobsFlags ?? [])];
    this.env = o.env ?? {};
  }

  startIngest(...flags: readonly string[]): Promise<Running> {
    return this.#start('ingest', ingestMain, ['--leader-election-namespace=default', ...flags]);
  }

  startJobs(...flags: readonly string[]): Promise<Running> {
    return this.#start('jobs', jobsMain, [...this.#jobsFlags, ...flags]);
  }

  async createClass(name: string, fields: object = {}): Promise<void> {
    await this.kube.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name },
      ...fields,
    });
  }

  /** @param of  the claim or its name */
  async isBound(of: Claim | string): Promise<boolean> {
    const name = typeof of === 'string' ? of : of.metadata.name;
    const claim = await this.kube.get<Claim>(claims, { namespace: 'default', name });
    return claim?.status?.phase === 'Bound';
  }

  /** Ends everything. */
  async close(): Promise<void> {
    assert.deepEqual(await this.closers.close(), []);
  }

  protected createClaimOf(
    name: string,
    spec: Partial<ClaimSpec>,
    annotations: Readonly<Record<string, string>> = {},
  ): Promise<Claim> {
    return this.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name, namespace: 'default', annotations },
      spec: {
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
        ...spec,
      },
    });
  }

  async #start(
    name: 'ingest' | 'jobs',
    main: typeof ingestMain,
    flags: readonly string[],
  ): Promise<Running> {
    const redis = `--redis-url=${urlOf(name, this.redis.url)}`;
    const running = await runMain(main, [...this.argv, redis, ...flags], this.env);
    this.closers.add(name, () => running.stop());
    return running;
  }
}
