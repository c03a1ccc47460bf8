import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';
import { after, before, describe, it } from 'node:test';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startWorkload, type Workload } from '../../bench/workload.ts';
import { type ChangeOverBed, openChangeOverBed } from '../harness/change-over/bed.ts';
import type { SutlerProcess } from '../harness/program.ts';
import { type Prometheus, skipsPrometheus, startPrometheus } from '../harness/prometheus.ts';
import { readYaml } from '../harness/real-manifests.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const CLAIMS = 150;
/** How much faster than in a cluster. */
const SOONER = 30;
/** A scrape that takes longer than its second leaves a gap. */
const LONGEST_GAP_MS = 10_000;

interface ScaledObject {
  readonly spec: {
    readonly minReplicaCount: number;
    readonly maxReplicaCount: number;
    readonly pollingInterval: number;
    readonly cooldownPeriod: number;
    readonly triggers: readonly [
      {
        readonly metadata: {
          readonly query: string;
          readonly threshold: string;
          readonly activationThreshold: string;
        };
      },
    ];
  };
}

const [{ spec }] = readYaml('autoscaling/keda/scaled-object.yaml') as readonly [ScaledObject];

interface ScalerOptions {
  /** Undefined: Prometheus has no value. */
  readonly read: (query: string) => Promise<number | undefined>;
  readonly start: () => Promise<SutlerProcess>;
}

/** Starts and stops jobs as KEDA does by k8s/autoscaling/keda: one replica as soon as the value is
 * above `activationThreshold`, none when it has not been for `cooldownPeriod`; between them as many
 * as the autoscaler that KEDA makes computes, a replica for each `threshold`. That one would lower
 * them slowly; here they follow at once, which is harder. */
class Scaler {
  /** The number of replicas after each change. */
  readonly changes: number[] = [0];
  readonly #options: ScalerOptions;
  readonly #stopped = new AbortController();
  readonly #running: Promise<void>;
  #replicas: SutlerProcess[] = [];
  #activeMs = -Infinity;
  #readMs = Date.now();

  constructor(options: ScalerOptions) {
    this.#options = options;
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      await this.#scale();
      await setTimeout((spec.pollingInterval * 1_000) / SOONER);
    }
  }

  async #scale(): Promise<void> {
    const { minReplicaCount, maxReplicaCount, cooldownPeriod, triggers } = spec;
    const { query, threshold, activationThreshold } = triggers[0].metadata;
    const value = await this.#options.read(query);
    // KEDA too leaves the replicas as they are, for some polls: `failureThreshold`.
    if (value === undefined)
      return assert.ok(Date.now() - this.#readMs < LONGEST_GAP_MS, 'Prometheus has a value');
    this.#readMs = Date.now();
    if (value > Number(activationThreshold)) this.#activeMs = Date.now();
    const isActive = Date.now() - this.#activeMs < (cooldownPeriod * 1_000) / SOONER;
    const count = isActive
      ? Math.min(maxReplicaCount, Math.max(1, Math.ceil(value / Number(threshold))))
      : minReplicaCount;
    if (count === this.#replicas.length) return;
    while (this.#replicas.length < count) this.#replicas.push(await this.#options.start());
    await Promise.all(this.#replicas.splice(count).map((each) => each.stop()));
    this.changes.push(count);
  }
}

describe('jobs that a ScaledObject starts and stops', { skip: skipsPrometheus }, () => {
  const closers = new Closers();
  let bed: ChangeOverBed;
  let prometheus: Prometheus;
  let workload: Workload;
  let scaler: Scaler;
  before(async () => {
    const cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    const { kubeconfig } = cluster;
    bed = await openChangeOverBed({ kubeconfig, workerThreads: 5, driverDelayMs: 200 });
    closers.add('bed', async () => assert.deepEqual(await bed.close(), []));
    const ingest = [await bed.startIngest(), await bed.startIngest()];
    const targets = ingest.map(({ url }) => ({ job: 'sutler-ingest', container: 'ingest', url }));
    prometheus = await startPrometheus({ folder: bed.folder, targets, closers });
    const { kube: client, driver, namespace } = bed;
    const pace = { concurrency: 50, log: silentLog };
    workload = await startWorkload({ client, driver, namespace, ...pace });
    closers.add('workload', () => workload.stop());
    scaler = new Scaler({
      read: async (query) => (await prometheus.query(query))[0]?.values[0],
      start: () => bed.startJobs(),
    });
    closers.add('scaler', () => scaler.stop());
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  it('make and delete the volumes of two bursts, each once, with none running between them', async (t) => {
    const signal = AbortSignal.timeout(300_000);
    const isIdle = (): boolean => scaler.changes.at(-1) === 0;
    const idles = (what: string): Promise<void> => until(isIdle, what, 60_000);
    const burst = (i: number): string[] =>
      Array.from({ length: CLAIMS }, (_, n) => `burst-${i}-${n}`);
    for (const i of [1, 2]) {
      await workload.create(burst(i), signal);
      await idles('no jobs run after the burst');
    }
    await workload.remove(burst(1), signal);
    await idles('no jobs run after the deletions');
    t.diagnostic(`replicas: ${scaler.changes.join(' ')}`);
    assert.equal(bed.ledger.creations, 2 * CLAIMS);
    assert.deepEqual(bed.ledger.madeAgain(), []);
    assert.equal(bed.handles().length, CLAIMS);
    assert.equal(scaler.changes.filter((count) => count === 0).length, 4);
    assert.ok(Math.max(...scaler.changes) > 1, 'more than one worked');
  });
});
