import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { CreateVolumeRequest, DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import * as resources from '#src/kube/resources.ts';
import { leaseName } from '#src/election/lease.ts';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Child, startChild } from '../../sandbox/children.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { VolumeStore } from '../../sandbox/driver/volume-store.ts';
import { sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));
const DRIVER = 'replicated.csi.sutler.dev';
const TIMEOUT_MS = 1_000;
const SETTLE_MS = 3_500;
/** How long the storage of a killed replica continues with its calls: past their deadline and past
 * the failover, but never past their settle time. */
const STUCK_MS = 4_000;

/** One call at a replica, from its arrival until the storage has finished it, even if the caller is
 * gone by then. */
interface LoggedCall {
  readonly replica: number;
  readonly uid: string;
  readonly method: string;
  readonly startMs: number;
  /** When the caller cancelled, or the connection was lost. */
  cutMs?: number;
  endMs?: number;
}

/** A controller pod: driver and gateway. All replicas share one storage; each has its own locks. */
class Replica {
  readonly index: number;
  readonly address: string;
  readonly #dir: string;
  readonly #store: VolumeStore;
  readonly #calls: LoggedCall[];
  readonly #env: NodeJS.ProcessEnv;
  #driver: SampleDriver | undefined;
  #gateway: Child | undefined;
  #killedMs = 0;

  constructor(index: number, shared: { dir: string; store: VolumeStore; calls: LoggedCall[] }) {
    this.index = index;
    this.#dir = shared.dir;
    this.#store = shared.store;
    this.#calls = shared.calls;
    this.#env = { PATH: process.env['PATH'], HOME: shared.dir };
    this.address = `unix://${join(shared.dir, `gateway-${index}.sock`)}`;
  }

  async start(): Promise<void> {
    this.#killedMs = 0;
    const socket = join(this.#dir, `csi-${this.index}.sock`);
    this.#driver = await startSampleDriver({
      socket,
      dataDir: '',
      store: this.#store,
      name: DRIVER,
      delayMs: 1,
      clock: { nowMs: () => Date.now(), sleep: () => this.#work() },
      onCall: (call) => this.#log(call),
    });
    const args = [
      `--csi-address=${socket}`,
      `--listen=${this.address}`,
      `--timeout=${TIMEOUT_MS}ms`,
      '--grace-period=3s',
    ];
    this.#gateway = start('csi-gateway', args, this.#env);
    await this.#gateway.announced;
  }

  /** Stops the replica like a deleted pod: SIGTERM to the gateway, then the driver. */
  async terminate(): Promise<void> {
    await this.#gateway?.stop(5_000);
    await this.#driver?.close(1_000);
  }

  /** Stops the replica like a failed node. Its storage continues with the calls under way. */
  async kill(): Promise<void> {
    const pid = this.#gateway?.pid;
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    this.#killedMs = Date.now();
    await Promise.all([this.#driver?.close(0), this.#gateway?.stop(0)]);
  }

  /** Waits as long as the storage takes for a call. */
  async #work(): Promise<void> {
    await sleep(50 + Math.random() * 250);
    if (this.#killedMs > 0) await sleep(this.#killedMs + STUCK_MS - Date.now());
  }

  async #log(call: DriverCall): Promise<unknown> {
    const uid = this.#uidOf(call);
    if (uid === undefined) return undefined;
    const entry: LoggedCall = {
      replica: this.index,
      uid,
      method: call.method,
      startMs: Date.now(),
    };
    this.#calls.push(entry);
    call.signal.addEventListener('abort', () => (entry.cutMs = Date.now()));
    try {
      return await call.proceed();
    } finally {
      entry.endMs = Date.now();
    }
  }

  #uidOf({ method, request }: DriverCall): string | undefined {
    // The method determines the type of the request.
    if (method === 'CreateVolume') return (request as CreateVolumeRequest).name.replace('pvc-', '');
    if (method !== 'DeleteVolume') return undefined;
    const { volumeId } = request as DeleteVolumeRequest;
    return (this.#store.byHandle(volumeId)?.name ?? volumeId).replace('pvc-', '');
  }
}

/** The end of the output of all processes. */
let output = '';
function start(name: string, args: readonly string[], env: NodeJS.ProcessEnv): Child {
  const command = [process.execPath, '--enable-source-maps', CLI, name, ...args] as const;
  const append = (text: string): unknown => (output = (output + text).slice(-200_000));
  return startChild(
    { name, command: [...command], env, output: append },
    { log: silentLog, onUsageError: () => undefined },
  );
}

/** Pairs of calls at different replicas of which one started before the other ended. */
function overlaps(calls: readonly LoggedCall[], endOf: (call: LoggedCall) => number): string[] {
  const found: string[] = [];
  for (const a of calls) {
    for (const b of calls) {
      if (a.replica === b.replica || b.startMs < a.startMs || b.startMs >= endOf(a)) continue;
      found.push(
        `${b.method} ${b.uid} at ${b.replica} started ${endOf(a) - b.startMs} ms before ` +
          `${a.method} ${a.uid} at ${a.replica} ended`,
      );
    }
  }
  return found;
}

describe('a rolling update of a driver with three replicas', () => {
  const closers = new Closers();
  const calls: LoggedCall[] = [];
  const replicas: Replica[] = [];
  let dir: string;
  let redis: TestRedis;
  let kube: KubeClient;
  let store: VolumeStore;
  let ingest: Readonly<Record<string, string>>;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-'));
    closers.add('folder', () => rm(dir, { recursive: true, force: true }));
    const cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    kube = await cluster.client();
    redis = await startTestRedis();
    closers.add('Redis', () => redis.close());

    store = new VolumeStore(join(dir, 'volumes'));
    for (const index of [0, 1, 2]) replicas.push(new Replica(index, { dir, store, calls }));
    await Promise.all(replicas.map((replica) => replica.start()));
    closers.add('replicas', () => Promise.all(replicas.map((replica) => replica.kill())));
    const addresses = replicas.map(({ address }) => address);
    const env = { PATH: process.env['PATH'], HOME: dir, REDIS_URL: redis.url };
    const common = [
      `--kubeconfig=${cluster.kubeconfig}`,
      `--timeout=${TIMEOUT_MS}ms`,
      `--settle-time=${SETTLE_MS}ms`,
      '-v=4',
    ];
    const retries = [
      '--retry-interval-start=100ms',
      '--retry-interval-max=1s',
      '--grace-period=2s',
    ];
    const processes = [
      start(
        'ingest',
        [...common, `--gateway=${addresses.join(',')}`, '--http-endpoint=127.0.0.1:0'],
        env,
      ),
      ...[1, 2].map(() =>
        start(
          'jobs',
          [...common, ...retries, ...addresses.map((address) => `--gateway=${address}`)],
          env,
        ),
      ),
    ];
    for (const child of processes) closers.add(child.name, () => child.stop(5_000));
    [ingest = {}] = await Promise.all(processes.map((child) => child.announced));
    await kube.create(resources.classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'replicated' },
      provisioner: DRIVER,
      reclaimPolicy: 'Delete',
    });
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const journal = { driver: DRIVER, lease: leaseName(DRIVER), namespace: 'default' };
  const newClaim = (name: string): Promise<Claim> =>
    kube.create<Claim>(resources.claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name, namespace: 'default' },
      spec: {
        storageClassName: 'replicated',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  const active = async (): Promise<Replica | undefined> => {
    const { endpoint } = await redisActiveGateway({
      redis: redis.redis,
      prefix: 'csi',
      driver: DRIVER,
    }).read();
    return replicas.find(({ address }) => address === endpoint);
  };
  const isBusy = ({ index }: Replica): boolean =>
    calls.filter(
      ({ replica, method, endMs }) =>
        replica === index && method === 'CreateVolume' && endMs === undefined,
    ).length >= 3;
  const movedFrom = (replica: Replica) =>
    until(async () => (await active()) !== replica, `failover from replica ${replica.index}`);

  it('calls one replica at a time, and loses no volume', async () => {
    const claims: Claim[] = [];
    const deleted = new Set<string>();
    const load = new AbortController();
    const work = (async () => {
      for (let n = 0; !load.signal.aborted; n += 1) {
        claims.push(await newClaim(`claim-${n}`));
        const victim = claims[Math.floor(Math.random() * claims.length)];
        if (n % 2 === 1 && victim !== undefined && !deleted.has(victim.metadata.name)) {
          deleted.add(victim.metadata.name);
          await kube.delete(resources.claims, { namespace: 'default', name: victim.metadata.name });
        }
        await sleep(60);
      }
    })();

    try {
      await until(
        async () => (await active()) !== undefined,
        `an active gateway\n${output.slice(-4_000)}`,
      );
      const order: Replica[] = [];
      for (const end of ['terminate', 'kill', 'terminate'] as const) {
        const replica = await active();
        assert.ok(replica !== undefined);
        await until(
          () => isBusy(replica),
          `work at replica ${replica.index}\n${output.slice(-4_000)}`,
        );
        order.push(replica);
        await Promise.all([replica[end](), movedFrom(replica)]);
        // The first replica is restarted only after the kill has moved the calls to the third one.
        // Otherwise they might move back to the first.
        if (end === 'kill') await order[0]?.start();
      }
      assert.equal(new Set(order).size, 3);
    } finally {
      load.abort();
      await work;
    }

    const kept = claims.filter(({ metadata }) => !deleted.has(metadata.name));
    const isFinished = async (): Promise<boolean> => {
      const { items } = await kube.list<Claim & { status?: { phase?: string } }>(resources.claims, {
        namespace: 'default',
      });
      const volumes = (await kube.list<Volume>(resources.volumes, {})).items;
      return (
        items.length === kept.length &&
        items.every(({ status }) => status?.phase === 'Bound') &&
        volumes.length === kept.length &&
        (await listJournal(kube, journal)).length === 0
      );
    };
    await until(isFinished, `all Bound or gone\n${output.slice(-8_000)}`);

    assert.deepEqual(
      store
        .list()
        .map(({ name }) => name)
        .toSorted(),
      kept.map(({ metadata }) => `pvc-${metadata.uid}`).toSorted(),
    );
    const endOf = (call: LoggedCall): number => call.endMs ?? Infinity;
    const waitedFor = (call: LoggedCall): number =>
      Math.min(endOf(call), call.cutMs ?? Infinity, call.startMs + TIMEOUT_MS);
    assert.deepEqual(overlaps(calls, waitedFor), [], 'calls at two replicas');
    assert.ok(
      calls.some(({ cutMs }) => cutMs !== undefined),
      'the kill cut no call',
    );
    for (const { index } of replicas)
      assert.ok(
        calls.some(({ replica }) => replica === index),
        `replica ${index} had no call`,
      );
  });

  it('reports the active gateway and the number of failovers', async () => {
    const current = (await active())?.address ?? '';
    const text = await (await fetch(`${ingest['http']}/metrics`)).text();
    assert.match(
      text,
      new RegExp(`sutler_active_gateway\\{driver="${DRIVER}",gateway="${current}"\\} 1`),
    );
    assert.equal(text.match(/^sutler_active_gateway\{.*\} 0$/gm)?.length, 2);
    assert.match(text, new RegExp(`sutler_active_gateway_moves_total\\{driver="${DRIVER}"\\} 3`));
    const ready = await fetch(`${ingest['http']}/readyz/active-gateway`);
    assert.equal(ready.status, 200);
    assert.match(output, /active gateway moved/);
  });
});
