import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadClusterAccess } from '../kube/credentials.ts';
import { keepRedisServer } from '../redis/own-server.ts';
import { parseListenAddress } from '../runtime/address.ts';
import { startChild, type Child } from '../runtime/children.ts';
import { openDataFolder } from '../runtime/data-folder.ts';
import { UsageError, withoutFlags } from '../runtime/flags.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { flags, summary } from './flags.ts';

/** In the order in which each finds what it needs; stopped the other way round. */
const PROCESSES = ['csi-gateway', 'ingest', 'jobs', 'dashboard'] as const;
const CLI = fileURLToPath(new URL('../cli.js', import.meta.url));
/** It makes much garbage and keeps none: a small nursery and a small heap cost it nothing, and a
 * burst leaves little behind. As in k8s/gateway. */
const GATEWAY_NODE_FLAGS = ['--max-semi-space-size=1', '--max-old-space-size=192'];
/** Set here for the children. Both are lists, of which the last one given would not win. */
const SET_HERE = { gateway: flags.gateway, listen: flags.gateway };
/** Longer than the jobs' default --grace-period. */
const STOP_GRACE_MS = 40_000;

/** The parent of the four processes. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'all', summary, table: flags, start });
}

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, log, closers } = p;
  const http = parseListenAddress('http-endpoint', f.httpEndpoint);
  // Read here only to refuse it before anything is started.
  await loadClusterAccess({ kubeconfig: f.kubeconfig, master: f.master, env: p.env });
  const folder = await openDataFolder('data-dir', resolve(f.dataDir), 'all');
  closers.add('data folder', () => folder.close());

  const redisUrl = f.redisUrl === '' ? await ownRedis(p, join(folder.path, 'redis')) : f.redisUrl;
  const [given, second] = f.gateway;
  if (second !== undefined)
    throw new UsageError(
      '--gateway: all starts one gateway; give one address, or start ingest and jobs by themselves',
    );
  const gateway = given ?? `unix://${join(folder.sockets, 'gateway.sock')}`;

  const facts: Record<string, string> = { redis: redisUrl.replace(/\/\/[^@/]*@/, '//'), gateway };
  const children: Child[] = [];
  for (const [index, name] of PROCESSES.entries()) {
    const port = http.port === 0 ? 0 : http.port + index;
    const child = startChild(
      {
        name,
        // Ours come last and win: four processes can't share a port, and the gateway listens where
        // the others call.
        command: [
          process.execPath,
          ...(name === 'csi-gateway' ? GATEWAY_NODE_FLAGS : []),
          CLI,
          name,
          ...withoutFlags(p.argv, SET_HERE),
          `--listen=${gateway}`,
          `--gateway=${gateway}`,
          `--http-endpoint=${withPort(f.httpEndpoint, port)}`,
        ],
        // By the environment: a password in an argument is for everybody on the machine to read.
        env: { ...p.env, REDIS_URL: redisUrl, SUTLER_REDIS_URL: redisUrl },
        output: (text) => p.stderr.write(text),
      },
      { log, onUsageError: () => p.stop(2) },
    );
    children.push(child);
    closers.add(name, () => child.stop(STOP_GRACE_MS));
  }
  for (const child of children) {
    const announced = await Promise.race([
      child.announced.catch(() => undefined),
      aborted(p.stopping),
    ]);
    for (const [fact, value] of Object.entries(announced ?? {}))
      facts[fact === child.name ? fact : `${child.name} ${fact}`] = value;
    if (child.pid !== undefined) facts[`${child.name} pid`] = String(child.pid);
  }
  if (!p.stopping.aborted) p.announce(facts);
}

async function ownRedis(
  { log, closers }: ProcessContext<typeof flags>,
  dataDir: string,
): Promise<string> {
  const server = await keepRedisServer({ dataDir, log });
  closers.add('redis-server', () => server.close());
  return server.url;
}

function withPort(address: string, port: number): string {
  return address.replace(/:\d+$/, `:${port}`);
}

function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((done) => {
    if (signal.aborted) done(undefined);
    else signal.addEventListener('abort', () => done(undefined), { once: true });
  });
}
