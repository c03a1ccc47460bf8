import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { performance } from 'node:perf_hooks';
import { Redis } from 'ioredis';
import { DEFAULT_PREFIX } from '#src/redis/key-prefix.ts';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { version } from '#src/runtime/version.ts';
import { costsBetween, readCounters, readWhenIdle } from './costs.ts';
import { type DriversOptions, measureDrivers } from './drivers.ts';
import {
  EVENT_SOURCES,
  type EventSourceResult,
  eventSourceRound,
  eventSourcesText,
} from './event-sources.ts';
import { flags as table, summary } from './flags.ts';
import { measureJobBytes } from './job-bytes.ts';
import { rssBytes } from './proc.ts';
import { CLIENT_NAME, sentDuring } from './redis-sample.ts';
import { type Report, type Times, timesOf, toJson, toText } from './report.ts';
import { drainText, idleText, latencyText, type Sides } from './rounds-report.ts';
import { drainRound, idleRound, latencyRound, type RoundOptions } from './rounds.ts';
import { type BackendOptions, startTestbed, type SutlerOptions, type Testbed } from './testbed.ts';
import { openWorkload } from './open-workload.ts';
import type { Track, Workload } from './workload.ts';

/** Claims created before anything is counted, so that Redis has the scripts and code is compiled.
 */
const WARM_UP = 20;
/** Claims whose Redis commands are recorded. */
const SAMPLE = 50;
const IDLE_MS = 5000;
const IDLE_LIMIT_MS = 30_000;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench', summary, table, start },
);

type Context = ProcessContext<typeof table>;

async function start(context: Context): Promise<void> {
  try {
    await bench(context);
  } catch (error) {
    // After Ctrl-C, errors are expected.
    if (!context.stopping.aborted) throw error;
  }
}

async function bench(context: Context): Promise<void> {
  const { flags, log, closers, stopping } = context;
  const options = testbedOptions(context);
  if (flags.drivers > 0) return benchDrivers(context, options);
  if (flags.eventSources > 0) return benchEventSources(context, options);
  if (flags.drain > 0 || flags.latency > 0 || flags.idleMs > 0)
    return benchRounds(context, options);
  const testbed = await startTestbed({ ...options, closers });
  const redis = new Redis(testbed.redisUrl, { connectionName: CLIENT_NAME });
  closers.add('Redis', () => redis.disconnect());
  const { concurrency } = flags;
  const workload = await openWorkload({ testbed, concurrency, log, closers });

  const report = await measure({
    flags,
    testbed,
    redis,
    workload,
    stopping,
    say: (line) => log.info(line),
  });
  context.stdout.write(flags.json ? `${toJson(report)}\n` : toText(report));
  context.stop(report.failures.length === 0 ? 0 : 1);
}

/** @throws UsageError for flags that do not fit together */
function testbedOptions(context: Context): Omit<BackendOptions, 'closers'> & SutlerOptions {
  const { flags, log, stopping } = context;
  const isReal = flags.backend === 'real';
  if (flags.annotated && !isReal)
    throw new UsageError('--annotated: the sandbox always has a volume binder; add --backend real');
  if (flags.annotated && flags.drain === 0 && flags.latency === 0 && flags.idleMs === 0)
    throw new UsageError('--annotated: only with --drain, --latency or --idle');
  return {
    backend: isReal ? 'real' : 'sandbox',
    binder: !flags.annotated,
    driverDelayMs: flags.driverDelayMs,
    workers: flags.workers,
    workerThreads: flags.workerThreads,
    profileDir: flags.profile,
    program: flags.program,
    commonArgs: flags.budget ? ['-v=6', '--logging-format=json'] : [],
    env: context.env,
    pid: context.pid,
    node: process.execPath,
    log,
    stopping,
  };
}

/** --drivers: several drivers and one. */
async function benchDrivers(
  { flags, stdout, stop }: Context,
  options: DriversOptions,
): Promise<void> {
  stdout.write(await measureDrivers(options, flags.drivers));
  stop(0);
}

/** --drain, --latency and --idle: sutler and the peer in turn. */
async function benchRounds(
  { flags, log, stdout, stopping, stop }: Context,
  options: Omit<BackendOptions, 'closers'> & SutlerOptions,
): Promise<void> {
  const sides = flags.peer === '' ? [''] : ['', flags.peer];
  const run = async <T>(round: (options: RoundOptions) => Promise<T>): Promise<Sides<T>> => {
    const results: Sides<T> & { sutler: T[]; peer: T[] } = { sutler: [], peer: [] };
    for (let i = 1; i <= flags.rounds; i += 1) {
      for (const peer of sides) {
        stopping.throwIfAborted();
        log.info({ round: i, provisioner: peer === '' ? 'sutler' : peer }, 'round');
        const result = await round({
          ...options,
          peer,
          traced: flags.budget && peer === '',
          patienceMs: flags.patienceMs,
        });
        results[peer === '' ? 'sutler' : 'peer'].push(result);
      }
    }
    return results;
  };
  const { drain: claims, latency: count, warmUp, idleMs } = flags;
  stdout.write(`${Object.values(machine()).join(', ')}\n`);
  if (claims > 0) stdout.write(drainText(await run((o) => drainRound(o, claims))));
  if (count > 0) stdout.write(latencyText(await run((o) => latencyRound(o, { count, warmUp }))));
  if (idleMs > 0) stdout.write(idleText(await run((o) => idleRound(o, idleMs))));
  stop(0);
}

/** --event-sources. */
async function benchEventSources(
  { flags, stdout, stop }: Context,
  options: Omit<BackendOptions, 'closers'> & SutlerOptions,
): Promise<void> {
  const { eventSources: count, bound, patienceMs } = flags;
  const round = { ...options, peer: '', traced: false, patienceMs };
  const results: EventSourceResult[] = [];
  for (const source of EVENT_SOURCES)
    results.push(await eventSourceRound(round, source, { count, bound }));
  stdout.write(`${Object.values(machine()).join(', ')}\n${eventSourcesText(results, bound)}`);
  stop(0);
}

interface Bench {
  readonly flags: Context['flags'];
  readonly testbed: Testbed;
  readonly redis: Redis;
  readonly workload: Workload;
  readonly stopping: AbortSignal;
  readonly say: (line: string) => void;
}

async function measure({ flags, testbed, redis, workload, stopping, say }: Bench): Promise<Report> {
  const pause = async (ms: number): Promise<void> => {
    await systemClock.sleep(ms, stopping);
    stopping.throwIfAborted();
  };
  const phaseTimeout = (): AbortSignal => signalWithin(stopping, flags.patienceMs);
  const counted = [...testbed.members, { name: 'bench itself', pid: process.pid, http: undefined }];
  const read = () => readCounters(counted, redis);
  const readIdle = () => readWhenIdle(read, { limitMs: IDLE_LIMIT_MS, pause });
  const names = (stem: string, count: number): string[] =>
    Array.from({ length: count }, (_, i) => `${stem}-${i}`);
  const removeAll = async (claims: readonly string[]): Promise<void> => {
    await workload.remove(claims, phaseTimeout());
    await readIdle();
  };

  say('warming up');
  const warm = names('warm', WARM_UP);
  await workload.create(warm, phaseTimeout());
  await removeAll(warm);
  await pause(IDLE_MS);
  const rss = await Promise.all(
    testbed.members.map(async ({ name, pid }) => [name, (await rssBytes(pid)) / 2 ** 20] as const),
  );

  say('one claim at a time');
  const idle = await oneAtATime(workload, names('idle', flags.idleClaims), phaseTimeout());
  say('measuring sizes');
  const bytes = await measureJobBytes({
    redis,
    prefix: DEFAULT_PREFIX,
    driver: testbed.driver,
    members: testbed.members,
    workload,
    claim: 'measured',
    pause,
  });
  say('counting Redis commands');
  const sample = names('sample', SAMPLE);
  await readIdle();
  const sent = await sentDuring(redis, async () => {
    await workload.create(sample, phaseTimeout());
  });
  await removeAll([...sample, 'measured', ...names('idle', flags.idleClaims)]);

  say(`burst of ${flags.claims} claims`);
  const burst = names('burst', flags.claims);
  const before = await read();
  const startedMs = performance.now();
  const created = await workload.create(burst, phaseTimeout());
  const createTimes = timesOf(created, startedMs);
  const between = await readIdle();
  const create = { ...createTimes, costs: costsBetween(before, between) };
  say(`deleting ${flags.claims} claims`);
  const removeMs = performance.now();
  const removed = await workload.remove(burst, phaseTimeout());
  const remove = { ...timesOf(removed, removeMs), costs: costsBetween(between, await readIdle()) };
  return {
    machine: machine(),
    settings: {
      backend: flags.backend,
      claims: flags.claims,
      workers: flags.workers,
      'worker-threads': flags.workerThreads,
      'driver-delay-ms': flags.driverDelayMs,
      concurrency: flags.concurrency,
      ...(flags.profile === '' ? {} : { profile: flags.profile }),
    },
    idleRssMiB: Object.fromEntries(rss),
    ...(idle === undefined ? {} : { idle }),
    create,
    remove,
    sent: { claims: SAMPLE, create: sent },
    bytes,
    failures: await findFailures(testbed, redis),
  };
}

async function oneAtATime(
  workload: Workload,
  names: readonly string[],
  signal: AbortSignal,
): Promise<Times | undefined> {
  if (names.length === 0) return undefined;
  const startedMs = performance.now();
  const tracks: Track[] = [];
  for (const name of names) tracks.push(...(await workload.create([name], signal)));
  return timesOf(tracks, startedMs);
}

/** Volumes that were not deleted, and failed driver calls. */
async function findFailures(testbed: Testbed, redis: Redis): Promise<readonly string[]> {
  const { driverCalls } = await readCounters(testbed.members, redis);
  const calls = (method: string): number => driverCalls.get(method) ?? 0;
  const created = calls('CreateVolume');
  const removed = calls('DeleteVolume');
  return [
    ...(created === removed ? [] : [`${created} volumes were created and ${removed} deleted`]),
    ...[...driverCalls]
      .filter(([method]) => / \(/.test(method) && !method.startsWith('Probe'))
      .map(([method, count]) => `${count} × ${method}`),
  ];
}

function machine(): Readonly<Record<string, string>> {
  const [cpu] = cpus();
  return {
    sutler: version,
    commit: firstLine('git', ['rev-parse', '--short', 'HEAD']),
    node: process.version,
    redis: firstLine('redis-server', ['--version']).replace(/^.*v=(\S+).*$/, '$1'),
    kernel: release(),
    cpus: `${cpus().length} × ${cpu?.model.trim() ?? 'unknown'}`,
    memory: `${Math.round(totalmem() / 2 ** 30)} GiB`,
    load: readFileSync('/proc/loadavg', 'utf8').split(' ')[0] ?? '',
  };
}

function firstLine(program: string, args: readonly string[]): string {
  try {
    return (
      execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split(
        '\n',
      )[0] ?? ''
    );
  } catch {
    return 'unknown';
  }
}
