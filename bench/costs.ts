import type { Redis } from 'ioredis';
import { request } from 'undici';
import { increase, parseMetrics, sumBy, type Sample } from './prometheus.ts';
import { connectionsOpened, cpuMs } from './proc.ts';
import type { Member } from './testbed.ts';

/** The counters of all processes, read together. */
export interface Reading {
  readonly atMs: number;
  /** By process and "VERB resource". */
  readonly apiRequests: ReadonlyMap<string, ReadonlyMap<string, number>>;
  /** Hints, jobs and runs by kind. */
  readonly queue: ReadonlyMap<string, number>;
  /** Calls that reached the driver, by method and code. */
  readonly driverCalls: ReadonlyMap<string, number>;
  /** By command, including commands inside scripts. */
  readonly redisCommands: ReadonlyMap<string, number>;
  readonly cpuMs: ReadonlyMap<string, number>;
  /** By the whole machine. More than a few during a phase means that connections are not reused. */
  readonly connectionsOpened: number;
}

/** What a phase added to the counters. */
export type Costs = Omit<Reading, 'atMs'> & { readonly tookMs: number };

export async function readCounters(members: readonly Member[], redis: Redis): Promise<Reading> {
  const pages = await Promise.all(
    members.map(async (member) => [member, await metricsOf(member)] as const),
  );
  const cpu = await Promise.all(
    members.map(async ({ name, pid }) => [processOf(name), await cpuMs(pid)] as const),
  );
  const apiRequests = new Map<string, ReadonlyMap<string, number>>();
  for (const [{ name }, samples] of pages) {
    const requests = sumBy(
      samples,
      'sutler_kube_requests_total',
      ({ verb = '', resource = '', code = '' }) =>
        `${verb} ${resource}${code.startsWith('2') ? '' : ` (${code})`}`,
    );
    const process = processOf(name);
    if (requests.size > 0) apiRequests.set(process, addCounts(apiRequests.get(process), requests));
  }
  const all = pages.flatMap(([, samples]) => samples);
  const gateway = pages
    .filter(([{ name }]) => name === 'csi-gateway')
    .flatMap(([, samples]) => samples);
  return {
    atMs: performance.now(),
    apiRequests,
    queue: new Map([
      ...sumBy(all, 'sutler_queue_requests_total', ({ kind }) => `requests from ingest, ${kind}`),
      ...sumBy(all, 'sutler_queue_jobs_added_total', ({ kind }) => `jobs that Redis took, ${kind}`),
      ...sumBy(
        all,
        'sutler_queue_jobs_deduplicated_total',
        ({ kind }) => `requests for a key that had a job, ${kind}`,
      ),
      ...sumBy(all, 'sutler_queue_runs_total', ({ kind, outcome }) => `runs, ${kind}, ${outcome}`),
    ]),
    driverCalls: sumBy(
      gateway,
      'csi_sidecar_operations_seconds_count',
      ({ method_name: method = '', grpc_status_code: code = '' }) =>
        `${method.replace(/^.*\//, '')}${code === 'OK' ? '' : ` (${code})`}`,
    ),
    redisCommands: commandCounts(await redis.info('commandstats')),
    connectionsOpened: await connectionsOpened(),
    cpuMs: cpu.reduce(
      (sums, [name, ms]) => sums.set(name, (sums.get(name) ?? 0) + ms),
      new Map<string, number>(),
    ),
  };
}

/** The difference of two readings. */
export function costsBetween(before: Reading, after: Reading): Costs {
  const none = new Map<string, number>();
  return {
    tookMs: after.atMs - before.atMs,
    apiRequests: new Map(
      [...after.apiRequests].map(([name, counts]) => [
        name,
        increase(before.apiRequests.get(name) ?? none, counts),
      ]),
    ),
    queue: increase(before.queue, after.queue),
    driverCalls: increase(before.driverCalls, after.driverCalls),
    redisCommands: increase(before.redisCommands, after.redisCommands),
    cpuMs: increase(before.cpuMs, after.cpuMs),
    connectionsOpened: after.connectionsOpened - before.connectionsOpened,
  };
}

/** Reads the counters until two readings in a row show no new driver call and no API request other
 * than for Leases. By then the events have been written, too. */
export async function readWhenIdle(
  read: () => Promise<Reading>,
  o: { readonly limitMs: number; readonly pause: (ms: number) => Promise<void> },
): Promise<Reading> {
  const untilMs = performance.now() + o.limitMs;
  let last = await read();
  for (;;) {
    await o.pause(1000);
    const next = await read();
    const { apiRequests, driverCalls } = costsBetween(last, next);
    const busy = [...apiRequests.values()].some((counts) =>
      [...counts.keys()].some((what) => !/leases|^watch/i.test(what)),
    );
    if (
      (!busy && ![...driverCalls.keys()].some((method) => method !== 'Probe')) ||
      performance.now() > untilMs
    )
      return next;
    last = next;
  }
}

async function metricsOf({ http }: Member): Promise<readonly Sample[]> {
  if (http === undefined) return [];
  const { body } = await request(`${http}/metrics`);
  return parseMetrics(await body.text());
}

/** The process of a member: `jobs` for `jobs#2`. */
function processOf(name: string): string {
  return name.split('#')[0] ?? name;
}

function addCounts(
  a: ReadonlyMap<string, number> = new Map(),
  b: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  const sums = new Map(a);
  for (const [key, value] of b) sums.set(key, (sums.get(key) ?? 0) + value);
  return sums;
}

/** Counts by command, including commands inside scripts, from INFO commandstats. */
export function commandCounts(info: string): ReadonlyMap<string, number> {
  const lines = info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm);
  return new Map(
    Array.from(lines, ([, command = '', calls]) => [command.replace('|', ' '), Number(calls)]),
  );
}
