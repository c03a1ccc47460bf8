import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { signalWithin, systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { version } from '#src/runtime/version.ts';
import { freePort } from '../test/harness/free-port.ts';
import { writeBoundPairs } from './bound-pairs.ts';
import { percentile } from './percentile.ts';
import { rssBytes } from './proc.ts';
import type { RoundOptions } from './rounds.ts';
import { type Backend, type Member, openBackend, startSutler } from './testbed.ts';
import { openWaitingClaims, type WaitingClaims } from './waiting-claims.ts';

/** The values of --event-source. */
export const EVENT_SOURCES = ['watch', 'webhook', 'both'] as const;

/** What ingest did with one event source. */
export interface EventSourceResult {
  readonly source: (typeof EVENT_SOURCES)[number];
  /** From the API server's answer to the create until a watch showed the PV, one at a time. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Of ingest, with the claims of the latencies alone. */
  readonly emptyBytes: number;
  /** Of an ingest that starts with `bound` more claims and volumes: at the end, and at most. */
  readonly fullBytes: number;
  readonly peakBytes: number;
}

const CONCURRENCY = 32;
const WARM_UP = 20;
/** Often, so that a round with many volumes has several. */
const RESYNC_MS = 10_000;
const SETTLE_MS = 3.5 * RESYNC_MS;
const SAMPLE_MS = 200;

/** Creates claims one at a time while ingest learns of them by one event source, then writes bound
 * claims, starts sutler again and watches ingest's memory. Webhooks are sent by the sandbox's
 * stand-in for Knative's ApiServerSource, which watches and posts each event to /events. */
export async function eventSourceRound(
  options: RoundOptions,
  source: EventSourceResult['source'],
  { count, bound }: { readonly count: number; readonly bound: number },
): Promise<EventSourceResult> {
  const closers = new Closers();
  const { log } = options;
  try {
    const backend = await openBackend({ ...options, closers });
    const client = createKubeClient({
      access: await loadClusterAccess({ kubeconfig: backend.kubeconfig, env: {} }),
      userAgent: `sutler-bench/${version}`,
      log,
    });
    closers.add('API client', () => client.close());
    const { driver } = backend;
    const isAnnotated = !options.binder;
    const claims = await openWaitingClaims({
      client,
      driver,
      isAnnotated,
      concurrency: CONCURRENCY,
      log,
    });
    closers.add('watch', () => claims.stop());
    const signal = signalWithin(options.stopping, options.patienceMs);
    const parts = new Closers();
    const first = await startWith(backend, { ...options, closers: parts }, source);
    const waitsMs = await createOneAtATime(claims, count, signal);
    const empty = await watchMemory(first);
    for (const error of await parts.close()) throw error;
    await writeBoundPairs({ client, driver, concurrency: CONCURRENCY }, 0, bound);
    const second = await startWith(backend, { ...options, closers }, source);
    const full = await watchMemory(second);
    return {
      source,
      p50Ms: percentile(waitsMs, 0.5),
      p99Ms: percentile(waitsMs, 0.99),
      emptyBytes: empty.endBytes,
      fullBytes: full.endBytes,
      peakBytes: full.peakBytes,
    };
  } finally {
    for (const error of await closers.close()) log.warn({ err: error }, 'closing the testbed');
  }
}

/** Starts sutler, and a sender for the sources with webhooks.
 * @returns ingest */
async function startWith(
  backend: Backend,
  options: RoundOptions & { readonly closers: Closers },
  source: EventSourceResult['source'],
): Promise<Member> {
  const { closers, commonArgs } = options;
  const address = `127.0.0.1:${await freePort()}`;
  const webhooks = source === 'watch' ? [] : [`--webhook-address=${address}`];
  const resync = `--resync-interval=${RESYNC_MS}ms`;
  const args = [...commonArgs, `--event-source=${source}`, resync, ...webhooks];
  const members = await startSutler(backend, { ...options, commonArgs: args });
  if (source !== 'watch')
    await backend.start({
      name: 'sandbox-event-sender',
      args: [`--kubeconfig=${backend.kubeconfig}`, `--sink=http://${address}/events`],
      closers,
    });
  const ingest = members.find(({ name }) => name === 'ingest');
  if (ingest === undefined) throw new Error('ingest was not started');
  return ingest;
}

async function createOneAtATime(
  claims: WaitingClaims,
  count: number,
  signal: AbortSignal,
): Promise<readonly number[]> {
  const waitsMs: number[] = [];
  for (let i = 0; i < WARM_UP + count; i += 1) {
    const name = `claim-${i}`;
    const [answeredMs = Number.NaN] = await claims.create([name]);
    await claims.waitForVolumes(i + 1, signal);
    waitsMs.push((claims.provisionedMs.get(name) ?? Number.NaN) - answeredMs);
  }
  return waitsMs.slice(WARM_UP);
}

/** Watches the memory of a process over some resyncs. */
async function watchMemory({
  pid,
}: Member): Promise<{ readonly endBytes: number; readonly peakBytes: number }> {
  let peakBytes = 0;
  for (let i = 0; i < SETTLE_MS / SAMPLE_MS; i += 1) {
    await systemClock.sleep(SAMPLE_MS);
    peakBytes = Math.max(peakBytes, await rssBytes(pid));
  }
  return { endBytes: await rssBytes(pid), peakBytes };
}

/** The results as lines. */
export function eventSourcesText(results: readonly EventSourceResult[], bound: number): string {
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
  return results
    .map(
      (each) =>
        `--event-source=${each.source}: claim to PV p50 ${each.p50Ms.toFixed(1)} ms, ` +
        `p99 ${each.p99Ms.toFixed(1)} ms; RSS of ingest ${mib(each.emptyBytes)}` +
        (bound === 0
          ? '\n'
          : `, with ${bound} bound claims and volumes ${mib(each.fullBytes)}, ` +
            `at most ${mib(each.peakBytes)}\n`),
    )
    .join('');
}
