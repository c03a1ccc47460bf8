// How much memory ingest and jobs use for several drivers, compared with one.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { claims, classes, namespaces } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { version } from '#src/runtime/version.ts';
import { rssBytes } from './proc.ts';
import {
  type Backend,
  type BackendOptions,
  type Member,
  openBackend,
  type SutlerOptions,
} from './testbed.ts';

export type DriversOptions = Omit<BackendOptions, 'closers'> & SutlerOptions;

/** Memory of each process, in bytes. */
type Memory = Readonly<Record<'ingest' | 'jobs', number>>;

const NAMESPACE = 'sutler-bench';
/** Claims that are Bound before memory is read, spread over the drivers. */
const CLAIMS = 200;
/** Time without work before memory is read. */
const QUIET_MS = 15_000;
const READINGS = 5;
const LIMIT_MS = 120_000;
const MIB = 1024 * 1024;

/** Runs ingest and jobs with one driver by flags, with one of --driver-config, and with `count`.
 * @returns a table with the ratios */
export async function measureDrivers(options: DriversOptions, count: number): Promise<string> {
  const rounds: (readonly [string, Memory])[] = [];
  const labels = ['one, by flags', 'one, by --driver-config', `${count}, by --driver-config`];
  for (const [i, label] of labels.entries()) {
    options.stopping.throwIfAborted();
    const memory = await measureOnce(options, { count: i === 2 ? count : 1, byFlags: i === 0 });
    options.log.info({ label, ...memory }, 'memory');
    rounds.push([label, memory]);
  }
  const [, first] = rounds[0] ?? [];
  const lines = rounds.map(([label, memory]) => {
    const cells = (['ingest', 'jobs'] as const).map((process) => {
      const ratio = memory[process] / (first?.[process] ?? NaN);
      const size = (memory[process] / MIB).toFixed(1).padStart(7);
      return `${process} ${size} MiB (${ratio.toFixed(2)})`;
    });
    return `${label.padEnd(26)}${cells.join('   ')}`;
  });
  const title = `drivers: RSS after ${CLAIMS} claims in all, and the ratio to the first line`;
  return `${[title, ...lines].join('\n')}\n`;
}

async function measureOnce(
  options: DriversOptions,
  o: { readonly count: number; readonly byFlags: boolean },
): Promise<Memory> {
  const closers = new Closers();
  try {
    const backend = await openBackend({ ...options, closers });
    const drivers = await startDrivers(backend, o.count, closers);
    const members = await startProcesses(backend, drivers, { ...o, closers });
    const client = await openClient(backend, options, closers);
    await provision(client, [...drivers.keys()], options.stopping);
    await systemClock.sleep(QUIET_MS, options.stopping);
    return { ingest: await memoryOf(members.ingest), jobs: await memoryOf(members.jobs) };
  } finally {
    await closers.close();
  }
}

/** @returns the gateway of each driver */
async function startDrivers(
  { start, dir }: Backend,
  count: number,
  closers: Closers,
): Promise<ReadonlyMap<string, string>> {
  const gateways = new Map<string, string>();
  for (let i = 1; i <= count; i += 1) {
    const driver = `driver-${i}.csi.sutler.dev`;
    const socket = `unix://${join(dir, `csi-${i}.sock`)}`;
    const gateway = `unix://${join(dir, `gateway-${i}.sock`)}`;
    const dataDir = join(dir, `volumes-${i}`);
    await start({
      name: `sandbox-driver#${i}`,
      args: [
        `--csi-address=${socket}`,
        `--data-dir=${dataDir}`,
        `--driver-name=${driver}`,
        '--capacity-gib=1000000',
      ],
      closers,
    });
    await start({
      name: `csi-gateway#${i}`,
      args: [`--csi-address=${socket}`, `--listen=${gateway}`],
      closers,
    });
    gateways.set(driver, gateway);
  }
  return gateways;
}

async function startProcesses(
  { kubeconfig, redisUrl, dir, start }: Backend,
  drivers: ReadonlyMap<string, string>,
  { byFlags, closers }: { readonly byFlags: boolean; readonly closers: Closers },
): Promise<{ readonly ingest: Member; readonly jobs: Member }> {
  const file = join(dir, 'drivers.yaml');
  const sections = [...drivers].map(([name, gateway]) => `  ${name}:\n    gateway: ${gateway}\n`);
  await writeFile(file, `drivers:\n${sections.join('')}`);
  const choice = byFlags
    ? `--gateway=${[...drivers.values()].join(',')}`
    : `--driver-config=${file}`;
  const args = [`--kubeconfig=${kubeconfig}`, choice];
  const env = { REDIS_URL: redisUrl };
  const [ingest, jobs] = await Promise.all([
    start({ name: 'ingest', args, env, closers }),
    start({ name: 'jobs', args, env, closers }),
  ]);
  return { ingest: ingest.member, jobs: jobs.member };
}

async function openClient(
  { kubeconfig }: Backend,
  { log }: DriversOptions,
  closers: Closers,
): Promise<KubeClient> {
  const access = await loadClusterAccess({ kubeconfig, env: {} });
  const client = createKubeClient({ access, userAgent: `sutler-bench/${version}`, log });
  closers.add('API client', () => client.close());
  return client;
}

/** Creates a class for each driver and the claims, and waits until all are Bound. */
async function provision(
  client: KubeClient,
  drivers: readonly string[],
  stopping: AbortSignal,
): Promise<void> {
  await client.create(namespaces, undefined, {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: NAMESPACE },
  });
  for (const name of drivers)
    await client.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name },
      provisioner: name,
    });
  for (let i = 0; i < CLAIMS; i += 1)
    await client.create<Claim>(claims, NAMESPACE, {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `claim-${i}`, namespace: NAMESPACE },
      spec: {
        storageClassName: drivers[i % drivers.length] ?? '',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  const limitMs = Date.now() + LIMIT_MS;
  while (!stopping.aborted) {
    const { items } = await client.list<Claim>(claims, { namespace: NAMESPACE });
    const bound = items.filter(({ status }) => status?.phase === 'Bound').length;
    if (bound === CLAIMS) return;
    if (Date.now() > limitMs) throw new Error(`only ${bound} of ${CLAIMS} claims are Bound`);
    await systemClock.sleep(500, stopping);
  }
}

async function memoryOf({ pid }: Member): Promise<number> {
  let bytes = 0;
  for (let i = 0; i < READINGS; i += 1) {
    bytes += await rssBytes(pid);
    await systemClock.sleep(1_000);
  }
  return bytes / READINGS;
}
