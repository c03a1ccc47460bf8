import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { Closers } from '#src/runtime/closers.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { version } from '#src/runtime/version.ts';
import {
  type BoundPairs,
  changeClaims,
  prepareBoundPairs,
  writeBoundPairs,
} from './bound-pairs.ts';
import { podEnv } from '../test/harness/pod-env.ts';
import { cpuMs, peakRssBytes, rssBytes } from './proc.ts';
import { type Backend, type Member, openBackend } from './testbed.ts';
import { flags as table, summary } from './watch-flags.ts';

/** V8 frees memory some seconds after the work. */
const SETTLE_MS = 15_000;
const SYNC_WITHIN_MS = 300_000;
const POLL_MS = 20;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:watch', summary, table, start },
);

type Context = ProcessContext<typeof table>;

/** What the program needs of its parts. */
interface Bench {
  readonly context: Context;
  readonly backend: Backend;
  readonly pairs: BoundPairs;
}

async function start(context: Context): Promise<void> {
  const { flags, env, pid, log, closers, stopping, stdout } = context;
  const sizes = flags.sizes.map(Number);
  if (sizes.some((size) => !Number.isInteger(size) || size < 0))
    throw new UsageError('--sizes: whole numbers, such as 0,10000,50000');
  const isReal = flags.backend === 'real';
  const backend = await openBackend({
    backend: isReal ? 'real' : 'sandbox',
    binder: false,
    driverDelayMs: 0,
    profileDir: '',
    env,
    pid,
    node: process.execPath,
    log,
    closers,
    stopping,
  });
  const client = createKubeClient({
    access: await loadClusterAccess({ kubeconfig: backend.kubeconfig, env: {} }),
    userAgent: `sutler-bench/${version}`,
    maxInFlight: flags.concurrency + 10,
    log,
  });
  closers.add('API client', () => client.close());
  const pairs = { client, driver: backend.driver, concurrency: flags.concurrency };
  const bench = { context, backend, pairs };
  await prepareBoundPairs(pairs);
  await backend.start({ name: 'csi-gateway', args: gatewayArgs(backend), closers });
  let written = 0;
  for (const size of sizes.toSorted((a, b) => a - b)) {
    await writeBoundPairs(pairs, written, size);
    written = size;
    stdout.write(await measureSize(bench, size));
  }
  stdout.write(await measureEvents(bench, written));
  context.stop(0);
}

async function measureSize(bench: Bench, size: number): Promise<string> {
  const closers = new Closers();
  try {
    const { member, syncMs } = await startIngest(bench, `ingest#${size}`, closers);
    const cpuOfStartMs = await cpuMs(member.pid);
    await systemClock.sleep(SETTLE_MS);
    const { rss, peak } = await memoryOf(member);
    return (
      `${size} claims and PVs: RSS ${rss}, peak ${peak} MiB, ` +
      `ready after ${seconds(syncMs)} s and ${seconds(cpuOfStartMs)} s of CPU\n`
    );
  } finally {
    await closers.close();
  }
}

/** Changes bound claims beside a leader and a standby, and then stops the leader. */
async function measureEvents(bench: Bench, pairs: number): Promise<string> {
  if (pairs === 0) return '';
  const { events } = bench.context.flags;
  const [closers, ofLeader] = [new Closers(), new Closers()];
  try {
    const { member: leader } = await startIngest(bench, 'ingest#leader', ofLeader);
    const { member: standby } = await startIngest(bench, 'ingest#standby', closers);
    const members = [leader, standby];
    await systemClock.sleep(SETTLE_MS);
    const before = await Promise.all(members.map(({ pid }) => cpuMs(pid)));
    const startedMs = performance.now();
    await changeClaims(bench.pairs, pairs, events);
    const tookMs = performance.now() - startedMs;
    await systemClock.sleep(1_000);
    const after = await Promise.all(members.map(({ pid }) => cpuMs(pid)));
    const perEvent = after.map((ms, i) => (((ms - (before[i] ?? 0)) * 1_000) / events).toFixed(0));
    const memory = await Promise.all(members.map(memoryOf));
    await ofLeader.close();
    const leadMs = await timeToLead(bench.backend, standby);
    return (
      `${events} changes of claims at ${((events * 1_000) / tookMs).toFixed(0)}/s: ` +
      `CPU ${perEvent.join(' and ')} µs each in leader and standby, ` +
      `RSS ${memory.map(({ rss }) => rss).join(' and ')} MiB\n` +
      `from beginning to lead to the first resync: ${leadMs} ms\n`
    );
  } finally {
    await ofLeader.close();
    await closers.close();
  }
}

/** Starts an ingest, and waits until it is ready. */
async function startIngest(
  { context: { flags, stopping }, backend }: Bench,
  name: string,
  closers: Closers,
): Promise<{ readonly member: Member; readonly syncMs: number }> {
  // As in a pod, where there is TLS: a kubeconfig costs about 30 MiB.
  const isInPod = flags.backend === 'real';
  const pod = await podEnv({
    kubeconfig: isInPod ? backend.kubeconfig : undefined,
    folder: join(backend.logsDir, 'service-account'),
    nodeOptions: flags.nodeOptions,
  });
  const startedMs = performance.now();
  const { member } = await backend.start({
    name,
    program: flags.program,
    args: [
      ...(isInPod ? [] : [`--kubeconfig=${backend.kubeconfig}`]),
      `--gateway=${gatewayOf(backend)}`,
      '--leader-election=true',
      '--leader-election-namespace=default',
      '--logging-format=json',
    ],
    env: { ...pod, REDIS_URL: backend.redisUrl },
    closers,
  });
  const signal = AbortSignal.any([stopping, AbortSignal.timeout(SYNC_WITHIN_MS)]);
  for (;;) {
    signal.throwIfAborted();
    const response = await fetch(`${member.http}/readyz`).catch(() => undefined);
    await response?.body?.cancel();
    if (response?.ok === true) return { member, syncMs: performance.now() - startedMs };
    await systemClock.sleep(POLL_MS);
  }
}

/** @returns ms between two lines of the log of an ingest that takes over */
async function timeToLead({ logsDir }: Backend, { name }: Member): Promise<number> {
  const timeOf = (text: string, message: string): number | undefined =>
    text
      .split('\n')
      .filter((line) => line.includes(message))
      .map((line) => (JSON.parse(line) as { time: number | string }).time)
      .map((time) => new Date(time).getTime())
      .at(0);
  const endMs = performance.now() + SYNC_WITHIN_MS;
  while (performance.now() < endMs) {
    const text = await readFile(join(logsDir, `${name}.log`), 'utf8');
    const beganMs = timeOf(text, 'leading: this ingest');
    const queuedMs = timeOf(text, 'enqueued everything outstanding');
    if (beganMs !== undefined && queuedMs !== undefined) return queuedMs - beganMs;
    await systemClock.sleep(POLL_MS);
  }
  throw new Error('the standby did not lead');
}

async function memoryOf({ pid }: Member): Promise<{ rss: string; peak: string }> {
  const [rss, peak] = await Promise.all([rssBytes(pid), peakRssBytes(pid)]);
  return { rss: mebibytes(rss), peak: mebibytes(peak) };
}

function gatewayOf({ dir }: Backend): string {
  return `unix://${join(dir, 'gateway.sock')}`;
}

function gatewayArgs(backend: Backend): readonly string[] {
  return [`--csi-address=${backend.socket}`, `--listen=${gatewayOf(backend)}`];
}

function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}
