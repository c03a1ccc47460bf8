import { performance } from 'node:perf_hooks';
import { Closers } from '#src/runtime/closers.ts';
import { signalWithin } from '#src/runtime/clock.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { flags as table, summary } from './cap-flags.ts';
import { openWorkload } from './open-workload.ts';
import { timesOf } from './report.ts';
import { startTestbed } from './testbed.ts';

/** Budget: part of the first rate. */
const LEAST_RATIO = 0.9;
const BENCH_CONCURRENCY = 32;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {}, retired: {} },
  { name: 'bench:cap', summary, table, start },
);

type Context = ProcessContext<typeof table>;

/** Volumes per second. */
interface Rates {
  readonly created: number;
  readonly deleted: number;
}

async function start(context: Context): Promise<void> {
  const { flags, stdout, stopping } = context;
  const limit = `--max-in-flight=${flags.cap}`;
  stdout.write(
    `${limit}, calls of ${flags.driverDelayMs} ms, ${flags.claims} claims, ` +
      `${flags.workers} workers, Node ${process.version}\n`,
  );
  let first: Rates | undefined;
  let isWithin = true;
  for (const threads of flags.workerThreads) {
    if (stopping.aborted) return;
    const rates = await measure(context, Number(threads));
    first ??= rates;
    const ratios = [rates.created / first.created, rates.deleted / first.deleted];
    isWithin &&= ratios.every((ratio) => ratio >= LEAST_RATIO);
    const [created, deleted] = ratios.map((ratio) => `${(100 * ratio).toFixed(0)} %`);
    stdout.write(
      `--worker-threads=${threads.padEnd(4)} ${rates.created.toFixed(1)} created/s (${created}), ` +
        `${rates.deleted.toFixed(1)} deleted/s (${deleted})\n`,
    );
  }
  context.stop(isWithin ? 0 : 1);
}

/** Creates and deletes all claims on a testbed of its own. */
async function measure({ flags, env, pid, log, stopping }: Context, threads: number) {
  const closers = new Closers();
  try {
    const testbed = await startTestbed({
      backend: 'sandbox',
      binder: true,
      driverDelayMs: flags.driverDelayMs,
      workers: flags.workers,
      workerThreads: threads,
      profileDir: '',
      program: '',
      commonArgs: [],
      jobsArgs: [],
      gatewayArgs: [`--max-in-flight=${flags.cap}`],
      env,
      pid,
      node: process.execPath,
      log,
      closers,
      stopping,
    });
    const concurrency = BENCH_CONCURRENCY;
    const workload = await openWorkload({ testbed, concurrency, log, closers });
    const names = (stem: string, count: number): string[] =>
      Array.from({ length: count }, (_, i) => `${stem}-${i}`);
    const time = async (method: 'create' | 'remove', claims: readonly string[]) => {
      const startedMs = performance.now();
      const tracks = await workload[method](claims, signalWithin(stopping, flags.patienceMs));
      return timesOf(tracks, startedMs).volumesPerSecond;
    };
    const burst = names('burst', flags.claims);
    await time('create', names('warm', flags.cap));
    return { created: await time('create', burst), deleted: await time('remove', burst) };
  } finally {
    for (const error of await closers.close()) log.warn({ err: error }, 'closing the testbed');
  }
}
