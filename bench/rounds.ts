import { performance } from 'node:perf_hooks';
import { Redis } from 'ioredis';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { Closers } from '#src/runtime/closers.ts';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';
import { version } from '#src/runtime/version.ts';
import { startPeer } from './peer.ts';
import { percentile } from './percentile.ts';
import { readIdleUsage, readUsage, type Usage, waitUntilQuiet } from './process-costs.ts';
import { increase } from './prometheus.ts';
import { CLIENT_NAME } from './redis-sample.ts';
import { readStepTimes, type StepTime, type TracedClaim } from './step-times.ts';
import {
  type Backend,
  type BackendOptions,
  type Member,
  openBackend,
  startSutler,
  type SutlerOptions,
} from './testbed.ts';
import { openWaitingClaims, type WaitingClaims } from './waiting-claims.ts';

const CONCURRENCY = 32;

export interface RoundOptions extends Omit<BackendOptions, 'closers'>, SutlerOptions {
  /** Path of external-provisioner, which runs in place of sutler; '' for sutler. */
  readonly peer: string;
  /** Whether sutler logs the steps of a claim, which makes them slower. */
  readonly traced: boolean;
  readonly patienceMs: number;
}

/** What waiting claims cost, without the start of the processes. */
export interface DrainResult {
  readonly claims: number;
  /** From the start of the last process until the first PV. */
  readonly firstMs: number;
  /** From the first PV to the last. */
  readonly spanMs: number;
  readonly usage: Usage;
}

/** Times from the API server's answer to the create until a watch showed the PV. */
export interface LatencyResult {
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Empty unless the steps are traced. */
  readonly steps: readonly StepTime[];
}

/** Lets one provisioner drain claims that were there before it started, on a backend of its own.
 * What its start costs is measured first, without claims, and subtracted. */
export function drainRound(options: RoundOptions, count: number): Promise<DrainResult> {
  return withBackend(options, async (round) => {
    const startCost = await round.measure(async () => {
      const started = await round.startProvisioner();
      await round.waitUntilQuiet();
      return started;
    });
    await startCost.result.stop();
    await round.claims.create(namesOf('drain', count));
    const drained = await round.measure(async () => {
      await round.startProvisioner();
      const startedMs = performance.now();
      await round.claims.waitForVolumes(count, round.signal);
      await round.waitUntilQuiet();
      return startedMs;
    });
    const times = [...round.claims.provisionedMs.values()];
    const firstMs = Math.min(...times);
    return {
      claims: count,
      firstMs: firstMs - drained.result,
      spanMs: Math.max(...times) - firstMs,
      usage: increase(startCost.usage, drained.usage),
    };
  });
}

/** Creates claims one at a time: when the provisioner has just started, and again after `warmUp`
 * others. */
export function latencyRound(
  options: RoundOptions,
  { count, warmUp }: { readonly count: number; readonly warmUp: number },
): Promise<{ readonly started: LatencyResult; readonly warm: LatencyResult }> {
  return withBackend(options, async (round) => {
    const { claims } = round;
    let created = 0;
    const create = async (names: readonly string[]): Promise<readonly number[]> => {
      const answeredMs = await claims.create(names);
      created += names.length;
      await claims.waitForVolumes(created, round.signal);
      return answeredMs;
    };
    const oneAtATime = async (stem: string): Promise<LatencyResult> => {
      const traced: TracedClaim[] = [];
      for (const name of namesOf(stem, count)) {
        const [answeredMs = Number.NaN] = await create([name]);
        const provisionedMs = claims.provisionedMs.get(name) ?? Number.NaN;
        const { timeOrigin } = performance;
        traced.push({
          answeredMs: timeOrigin + answeredMs,
          provisionedMs: timeOrigin + provisionedMs,
        });
      }
      await round.waitUntilQuiet();
      const waitsMs = traced.map(({ answeredMs, provisionedMs }) => provisionedMs - answeredMs);
      return {
        p50Ms: percentile(waitsMs, 0.5),
        p99Ms: percentile(waitsMs, 0.99),
        steps: options.traced ? await readStepTimes(round.logsDir, traced) : [],
      };
    };
    await round.startProvisioner();
    await round.waitUntilQuiet();
    const started = await oneAtATime('started');
    await create(namesOf('warm-up', warmUp));
    await round.waitUntilQuiet();
    return { started, warm: await oneAtATime('warm') };
  });
}

/** What the processes use while there is nothing to do. */
export interface IdleResult {
  readonly seconds: number;
  readonly usage: Usage;
}

/** Time from the start of the processes until they are measured: by then code is compiled, and what
 * is done once after a start is done. */
const SETTLE_MS = 20_000;

/** Starts the processes and lets them do nothing, after one claim so that the queues exist. */
export function idleRound(options: RoundOptions, idleMs: number): Promise<IdleResult> {
  return withBackend(options, async (round) => {
    await round.startProvisioner();
    await round.claims.create(namesOf('idle', 1));
    await round.claims.waitForVolumes(1, round.signal);
    await round.pause(SETTLE_MS);
    const startedMs = performance.now();
    const before = await round.readIdleUsage();
    await round.pause(idleMs);
    const usage = increase(before, await round.readIdleUsage());
    return { seconds: (performance.now() - startedMs) / 1_000, usage };
  });
}

function namesOf(stem: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${stem}-${i}`);
}

interface Round {
  readonly logsDir: string;
  readonly claims: WaitingClaims;
  /** Ends when the bench stops or its patience does. */
  readonly signal: AbortSignal;
  startProvisioner(): Promise<{ readonly stop: () => Promise<void> }>;
  /** @throws the reason of the signal when it aborts */
  pause(ms: number): Promise<void>;
  waitUntilQuiet(): Promise<void>;
  /** What the provisioner and Redis have used since they started. */
  readIdleUsage(): Promise<Usage>;
  /** What all processes use during `work`; those that it starts, from their start. */
  measure<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly usage: Usage }>;
}

async function withBackend<T>(
  options: RoundOptions,
  work: (round: Round) => Promise<T>,
): Promise<T> {
  const { log, stopping } = options;
  const closers = new Closers();
  try {
    const backend = await openBackend({ ...options, closers });
    const redis = new Redis(backend.redisUrl, { connectionName: CLIENT_NAME });
    closers.add('Redis', () => redis.disconnect());
    const client = createKubeClient({
      access: await loadClusterAccess({ kubeconfig: backend.kubeconfig, env: {} }),
      userAgent: `sutler-bench/${version}`,
      log,
    });
    closers.add('API client', () => client.close());
    const claims = await openWaitingClaims({
      client,
      driver: backend.driver,
      isAnnotated: !options.binder,
      concurrency: CONCURRENCY,
      log,
    });
    closers.add('watch', () => claims.stop());
    const signal = signalWithin(stopping, options.patienceMs);
    return await work(openRound(options, { backend, claims, closers, redis, signal }));
  } finally {
    for (const error of await closers.close()) log.warn({ err: error }, 'closing the testbed');
  }
}

function openRound(
  options: RoundOptions,
  {
    backend,
    claims,
    closers,
    redis,
    signal,
  }: {
    readonly backend: Backend;
    readonly claims: WaitingClaims;
    readonly closers: Closers;
    readonly redis: Redis;
    readonly signal: AbortSignal;
  },
): Round {
  let own: readonly Member[] = [];
  const read = () => readUsage([...backend.members, ...own], redis);
  const pause = async (ms: number): Promise<void> => {
    await systemClock.sleep(ms, signal);
    signal.throwIfAborted();
  };
  return {
    claims,
    signal,
    logsDir: backend.logsDir,
    async startProvisioner() {
      const parts = new Closers();
      const stop = async (): Promise<void> => {
        own = [];
        await parts.close();
      };
      closers.add('provisioner', stop);
      own =
        options.peer === ''
          ? await startSutler(backend, { ...options, closers: parts })
          : await startPeer(backend, { ...options, program: options.peer, closers: parts });
      return { stop };
    },
    pause,
    waitUntilQuiet: () => waitUntilQuiet(own, pause),
    readIdleUsage: () => {
      const server = backend.members.filter(({ name }) => name === 'redis-server');
      return readIdleUsage([...own, ...server], redis);
    },
    async measure(run) {
      const before = await read();
      const result = await run();
      return { result, usage: increase(before, await read()) };
    },
  };
}
