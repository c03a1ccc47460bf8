import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { CreateVolumeRequest, DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { leaseName } from '#src/election/lease.ts';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Child, startChild } from '../../sandbox/children.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { VolumeStore } from '../../sandbox/driver/volume-store.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { sleep } from '../harness/queue.ts';
import type { Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));
const TIMEOUT_MS = 1_000;
const SETTLE_MS = 3_500;
/** How long the storage of a killed replica continues with its calls: past their deadline and past
 * the failover, but never past their settle time. */
const STUCK_MS = 4_000;

type Folder = Awaited<ReturnType<typeof makeFolder>>;

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
  readonly #folder: Folder;
  readonly #store: VolumeStore;
  readonly #calls: LoggedCall[];
  #driver: SampleDriver | undefined;
  #gateway: Child | undefined;
  #killedMs = 0;

  constructor(index: number, folder: Folder, store: VolumeStore, calls: LoggedCall[]) {
    this.index = index;
    this.#folder = folder;
    this.#store = store;
    this.#calls = calls;
    this.address = `unix://${folder.file(`gateway-${index}.sock`)}`;
  }

  async start(): Promise<void> {
    this.#killedMs = 0;
    const socket = this.#folder.file(`csi-${this.index}.sock`);
    this.#driver = await startSampleDriver({
      socket,
      dataDir: '',
      store: this.#store,
      name: DRIVER,
      delayMs: 1,
      clock: { nowMs: () => Date.now(), sleep: () => this.#work() },
      onCall: (call) => this.#log(call),
    });
    const flags = [`--csi-address=${socket}`, `--listen=${this.address}`];
    const times = [`--timeout=${TIMEOUT_MS}ms`, '--grace-period=3s'];
    this.#gateway = startChild(
      {
        name: 'csi-gateway',
        command: [process.execPath, CLI, 'csi-gateway', ...flags, ...times],
        env: { PATH: process.env['PATH'], HOME: this.#folder.path },
        output: () => undefined,
      },
      { log: silentLog, onUsageError: () => undefined },
    );
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
    const { method } = call;
    const uid = this.#uidOf(call);
    if (uid === undefined) return undefined;
    const entry: LoggedCall = { replica: this.index, uid, method, startMs: Date.now() };
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

/** Pairs of calls at different replicas of which one started before the other ended. */
function overlaps(calls: readonly LoggedCall[], endOf: (call: LoggedCall) => number): string[] {
  return calls.flatMap((a) =>
    calls
      .filter((b) => a.replica !== b.replica && b.startMs >= a.startMs && b.startMs < endOf(a))
      .map(
        (b) =>
          `${b.method} ${b.uid} at ${b.replica} started ${endOf(a) - b.startMs} ms before ` +
          `${a.method} ${a.uid} at ${a.replica} ended`,
      ),
  );
}

describe('a rolling update of a driver with three replicas', () => {
  const calls: LoggedCall[] = [];
  let folder: Folder;
  let bed: ProcessBed;
  let store: VolumeStore;
  let replicas: readonly Replica[];
  let ingest: Running;

  before(async () => {
    folder = await makeFolder();
    store = new VolumeStore(folder.file('volumes'));
    replicas = [0, 1, 2].map((index) => new Replica(index, folder, store, calls));
    await Promise.all(replicas.map((replica) => replica.start()));
    bed = await ProcessBed.open({
      gatewayFlags: replicas.map(({ address }) => `--gateway=${address}`),
      flags: [`--timeout=${TIMEOUT_MS}ms`],
    });
    ingest = await bed.startIngest();
    for (let n = 0; n < 2; n += 1)
      await bed.startJobs(
        `--settle-time=${SETTLE_MS}ms`,
        '--retry-interval-start=100ms',
        '--retry-interval-max=1s',
        '--grace-period=2s',
      );
  });
  after(async () => {
    await bed.close();
    await Promise.all(replicas.map((replica) => replica.kill()));
    await folder.remove();
  });

  const active = async (): Promise<Replica | undefined> => {
    const place = { redis: bed.redis.redis, prefix: 'csi', driver: DRIVER };
    const { endpoint } = await redisActiveGateway(place).read();
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
    const made: Claim[] = [];
    const deleted = new Set<string>();
    const load = new AbortController();
    const work = (async () => {
      for (let n = 0; !load.signal.aborted; n += 1) {
        made.push(await bed.newClaim());
        const victim = made[Math.floor(Math.random() * made.length)];
        if (n % 2 === 1 && victim !== undefined && !deleted.has(victim.metadata.name)) {
          deleted.add(victim.metadata.name);
          await bed.kube.delete(claims, victim.metadata);
        }
        await sleep(60);
      }
    })();

    try {
      await until(async () => (await active()) !== undefined, 'an active gateway');
      const order: Replica[] = [];
      for (const end of ['terminate', 'kill', 'terminate'] as const) {
        const replica = await active();
        assert.ok(replica !== undefined);
        await until(() => isBusy(replica), `work at replica ${replica.index}`);
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

    const kept = made.filter(({ metadata }) => !deleted.has(metadata.name));
    const journal = { driver: DRIVER, lease: leaseName(DRIVER), namespace: 'default' };
    await until(async () => {
      const { items } = await bed.kube.list<Claim>(claims, { namespace: 'default' });
      return (
        items.length === kept.length &&
        items.every(({ status }) => status?.phase === 'Bound') &&
        (await bed.kube.list<Volume>(volumes, {})).items.length === kept.length &&
        (await listJournal(bed.kube, journal)).length === 0
      );
    }, 'all are Bound or gone');

    const names = store.list().map(({ name }) => name);
    assert.deepEqual(
      names.toSorted(),
      kept.map(({ metadata }) => `pvc-${metadata.uid}`).toSorted(),
    );
    const waitedFor = ({ startMs, cutMs = Infinity, endMs = Infinity }: LoggedCall): number =>
      Math.min(endMs, cutMs, startMs + TIMEOUT_MS);
    assert.deepEqual(overlaps(calls, waitedFor), [], 'calls at two replicas');
    assert.ok(
      calls.some(({ cutMs }) => cutMs !== undefined),
      'the kill cut no call',
    );
    assert.equal(new Set(calls.map(({ replica }) => replica)).size, 3);
  });

  it('reports the active gateway and the number of failovers', async () => {
    const current = (await active())?.address ?? '';
    const text = await (await fetch(`${ingest.url}/metrics`)).text();
    const gauge = `sutler_active_gateway\\{driver="${DRIVER}",gateway="${current}"\\} 1`;
    assert.match(text, new RegExp(gauge));
    assert.equal(text.match(/^sutler_active_gateway\{.*\} 0$/gm)?.length, 2);
    assert.match(text, new RegExp(`sutler_active_gateway_moves_total\\{driver="${DRIVER}"\\} 3`));
    assert.equal((await fetch(`${ingest.url}/readyz/active-gateway`)).status, 200);
    assert.match(ingest.output.join(''), /active gateway moved/);
  });
});
