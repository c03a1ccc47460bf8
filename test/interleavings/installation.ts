import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { textAt } from '../../sandbox/api/json-value.ts';
import { claims } from '../../sandbox/api/kinds/claims.ts';
import { classes } from '../../sandbox/api/kinds/storage.ts';
import { volumes } from '../../sandbox/api/kinds/volumes.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { type Child, startChild } from '../../sandbox/children.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));
const DRIVER = 'faults.csi.sutler.dev';
/** Every process of the installation. */
export const NAMES = ['sandbox-driver', 'csi-gateway', 'ingest', 'jobs'] as const;
export type Name = (typeof NAMES)[number];
/** What ingest watches; jobs watches classes too. */
const WATCHED = ['persistentvolumeclaims', 'persistentvolumes', 'storageclasses'];
/** Longer than a volume that was created in doubt waits for its deletion. */
const WITHIN_MS = 45_000;

/** sutler as separate processes with short times. A process that is killed is started again; no
 * other should need that. Claims are created without the API's HTTP server, so that a test can
 * create them while it does not answer. */
export class Installation {
  readonly cluster: SandboxCluster;
  readonly volumesDir: string;
  readonly #closers: Closers;
  readonly #children: ReadonlyMap<Name, Child>;
  readonly #urls = new Map<Name, string>();
  readonly #output: () => string;
  #serial = 0;
  #watches = WATCHED.length + 1;

  private constructor(parts: {
    cluster: SandboxCluster;
    volumesDir: string;
    closers: Closers;
    children: ReadonlyMap<Name, Child>;
    output: () => string;
  }) {
    this.cluster = parts.cluster;
    this.volumesDir = parts.volumesDir;
    this.#closers = parts.closers;
    this.#children = parts.children;
    this.#output = parts.output;
  }

  /** Resolves when everything runs and a first claim is Bound. */
  static async open(): Promise<Installation> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    const redis = await startTestRedis();
    closers.add('Redis', () => redis.close());
    const volumesDir = folder.file('volumes');
    const driver = `unix://${folder.file('csi.sock')}`;
    const gateway = `unix://${folder.file('gateway.sock')}`;
    const ownership = [
      '--timeout=1s',
      '--settle-time=500ms',
      `--gateway=${gateway}`,
      `--kubeconfig=${cluster.kubeconfig}`,
    ];
    const argv: Readonly<Record<Name, readonly string[]>> = {
      'sandbox-driver': [
        `--csi-address=${driver}`,
        `--driver-name=${DRIVER}`,
        `--data-dir=${volumesDir}`,
        '--delay-ms=50',
      ],
      'csi-gateway': [`--csi-address=${driver}`, `--listen=${gateway}`, '--timeout=500ms'],
      ingest: [
        ...ownership,
        '--leader-election-lease-duration=1500ms',
        '--leader-election-renew-deadline=1s',
        '--leader-election-retry-period=200ms',
      ],
      jobs: [...ownership, '--retry-interval-start=50ms', '--retry-interval-max=500ms'],
    };
    let output = '';
    const children = new Map<Name, Child>();
    for (const name of NAMES) {
      const plan = {
        name,
        command: [
          process.execPath,
          '--enable-source-maps',
          CLI,
          name,
          ...argv[name],
          '--http-endpoint=127.0.0.1:0',
        ] as const,
        env: { PATH: process.env['PATH'], HOME: folder.path, REDIS_URL: redis.url },
        output: (text: string) => (output = (output + text).slice(-20_000)),
      };
      const child = startChild(plan, { log: silentLog, onUsageError: () => undefined });
      children.set(name, child);
      closers.add(name, () => child.stop(5_000));
    }
    const installation = new Installation({
      cluster,
      volumesDir,
      closers,
      children,
      output: () => output,
    });
    try {
      await installation.#bindFirstClaim();
    } catch (error) {
      await closers.close();
      throw error;
    }
    return installation;
  }

  async #bindFirstClaim(): Promise<void> {
    for (const name of NAMES)
      this.#urls.set(name, (await this.#children.get(name)?.announced)?.['http'] ?? '');
    this.cluster.api.operations.create(classes, undefined, {
      metadata: { name: 'class' },
      provisioner: DRIVER,
      reclaimPolicy: 'Delete',
      volumeBindingMode: 'Immediate',
    });
    this.makeClaims(1);
    await this.allBound();
    for (const name of NAMES)
      await until(
        async () => (await this.readiness(name)).status === 200,
        `${name} is ready`,
        WITHIN_MS,
      );
    await this.allWatch();
    this.#watches = this.cluster.api.watchCount();
  }

  async close(): Promise<readonly Error[]> {
    return this.#closers.close();
  }

  /** @returns the names of the claims */
  makeClaims(count: number): readonly string[] {
    return Array.from({ length: count }, () => {
      const name = `claim-${(this.#serial += 1)}`;
      this.cluster.api.operations.create(claims, 'default', {
        metadata: { name },
        spec: {
          storageClassName: 'class',
          accessModes: ['ReadWriteOnce'],
          resources: { requests: { storage: '1Mi' } },
        },
      });
      return name;
    });
  }

  deleteClaims(names: readonly string[]): void {
    for (const name of names)
      this.cluster.api.operations.delete({ resource: claims, namespace: 'default', name });
  }

  /** Claims that have no volume yet. */
  get pending(): number {
    return this.#phases(claims).filter((phase) => phase !== 'Bound').length;
  }

  pid(name: Name): number | undefined {
    return this.#children.get(name)?.pid;
  }

  pids(): readonly (number | undefined)[] {
    return NAMES.map((name) => this.pid(name));
  }

  /** How many lists of what is watched the API server was asked for so far. */
  get lists(): number {
    const counts = this.cluster.api.requests.snapshot();
    return WATCHED.reduce((sum, plural) => sum + (counts[`list ${plural}`] ?? 0), 0);
  }

  async readiness(name: Name): Promise<{ readonly status: number; readonly text: string }> {
    const reply = await fetch(`${this.#urls.get(name)}/readyz`);
    return { status: reply.status, text: await reply.text() };
  }

  /** Resolves when all watches are open again. */
  allWatch(): Promise<void> {
    return until(
      () => this.cluster.api.watchCount() >= this.#watches,
      'all watches are open',
      WITHIN_MS,
    );
  }

  /** Resolves when every claim and every PV is Bound, and the driver has one directory for each PV
   * and no other. */
  async allBound(): Promise<void> {
    const isDone = (): boolean => {
      const [ofClaims, ofVolumes] = [this.#phases(claims), this.#phases(volumes)];
      const isBound = [...ofClaims, ...ofVolumes].every((phase) => phase === 'Bound');
      return (
        isBound &&
        ofClaims.length === ofVolumes.length &&
        readdirSync(this.volumesDir).length === ofVolumes.length
      );
    };
    await until(isDone, 'all is bound and nothing is left over', WITHIN_MS).catch(
      (cause: unknown) => {
        const found =
          `claims ${this.#phases(claims).join()}; PVs ${this.#phases(volumes).join()}; ` +
          `volumes ${readdirSync(this.volumesDir).length}`;
        throw new Error(`${found}\n${this.#output()}`, { cause });
      },
    );
  }

  #phases(resource: typeof claims): readonly string[] {
    return this.cluster.api.operations.store
      .collection(resource)
      .sorted.map(({ object }) => textAt(object, 'status', 'phase'));
  }
}
