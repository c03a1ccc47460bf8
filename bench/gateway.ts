import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { CsiClient } from '#src/gateway-client/client.ts';
import { openGatewaySecurity } from '#src/gateway-client/credentials.ts';
import { formatAddress, type Address } from '#src/runtime/address.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { flags, summary } from './gateway-flags.ts';
import { percentile } from './percentile.ts';
import { cpuMs, rssBytes } from './proc.ts';

const CLI = fileURLToPath(new URL('../sandbox/cli.js', import.meta.url));
const CERTIFICATES = fileURLToPath(new URL('../../k8s/gateway/certificates.sh', import.meta.url));
const TIMEOUT_MS = 30_000;
const IDLE_MS = 5_000;
const RSS_SAMPLES = 10;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {}, retired: {} },
  { name: 'bench:gateway', summary, table: flags, start },
);

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, closers, log } = p;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-bench-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const socket = join(folder, 'csi.sock');
  const door: Address = f.tls
    ? { kind: 'tcp', host: '127.0.0.1', port: await freePort() }
    : { kind: 'unix', path: join(folder, 'gw.sock') };
  if (f.tls)
    execFileSync(CERTIFICATES, [folder], { env: { ...p.env, GATEWAY_NAMES: 'IP:127.0.0.1' } });
  const file = (name: string): string => (f.tls ? join(folder, name) : '');
  const security = await openGatewaySecurity(
    {
      gatewayTlsCa: file('ca.crt'),
      gatewayTlsCert: file('jobs.crt'),
      gatewayTlsKey: file('jobs.key'),
      gatewayTlsServerName: '',
      gatewayInsecure: false,
    },
    { clock: systemClock, log },
  );
  closers.add('TLS files', () => security.close());

  const begin = async (nodeFlags: readonly string[], args: readonly string[]): Promise<number> => {
    const child = spawn(process.execPath, [...nodeFlags, CLI, ...args], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    closers.add(args[0] ?? '', () => ended(child));
    await once(child, 'message');
    if (child.pid === undefined) throw new Error(`${args[0]} did not start`);
    return child.pid;
  };
  await begin(
    [],
    ['sandbox-driver', `--csi-address=${socket}`, `--data-dir=${join(folder, 'data')}`],
  );
  const tlsArgs = [
    `--tls-cert=${file('gateway.crt')}`,
    `--tls-key=${file('gateway.key')}`,
    `--tls-client-ca=${file('ca.crt')}`,
    '--tls-allowed-names=DNS:sutler-jobs',
  ];
  const gateway = await begin(
    f.nodeFlags.split(' ').filter((word) => word !== ''),
    [
      'csi-gateway',
      `--csi-address=${socket}`,
      `--listen=${formatAddress(door)}`,
      '--http-endpoint=127.0.0.1:0',
      ...(f.tls ? tlsArgs : []),
    ],
  );
  const direct = new CsiClient({ address: { kind: 'unix', path: socket }, log });
  const through = new CsiClient({
    address: door,
    log,
    ...(security.tls === undefined ? {} : { tls: security.tls }),
  });
  closers.add('clients', () => [direct, through].forEach((client) => client.close()));

  await systemClock.sleep(IDLE_MS, p.stopping);
  const idleRss = await rssBytes(gateway);
  for (let i = 0; i < 500; i += 1) await Promise.all([timed(direct), timed(through)]);
  const times = { direct: [] as number[], through: [] as number[] };
  for (let i = 0; i < f.idleCalls && !p.stopping.aborted; i += 1) {
    times.direct.push(await timed(direct));
    times.through.push(await timed(through));
  }
  const rss: number[] = [];
  const cpuBefore = await cpuMs(gateway);
  const startedMs = performance.now();
  for (let part = 0; part < RSS_SAMPLES && !p.stopping.aborted; part += 1) {
    await many(through, Math.round(f.calls / RSS_SAMPLES), f.concurrency);
    rss.push(await rssBytes(gateway));
  }
  const wallMs = performance.now() - startedMs;
  const cpuPerCallUs = (((await cpuMs(gateway)) - cpuBefore) * 1_000) / f.calls;
  const [p50Direct, p50Through] = [percentile(times.direct, 0.5), percentile(times.through, 0.5)];
  const report = {
    node: process.version,
    door: f.tls ? 'TCP, mutual TLS 1.3' : 'unix socket',
    p50Ms: { direct: p50Direct, through: p50Through, added: p50Through - p50Direct },
    p99Ms: { direct: percentile(times.direct, 0.99), through: percentile(times.through, 0.99) },
    callsPerSecond: (f.calls * 1_000) / wallMs,
    cpuPerCallUs,
    rssMiB: { idle: mib(idleRss), over: rss.map(mib) },
  };
  p.stdout.write(f.json ? `${JSON.stringify(report)}\n` : toText(report, f.calls, f.concurrency));
  p.stop(0);
}

interface Report {
  readonly node: string;
  readonly door: string;
  readonly p50Ms: { readonly direct: number; readonly through: number; readonly added: number };
  readonly p99Ms: { readonly direct: number; readonly through: number };
  readonly callsPerSecond: number;
  readonly cpuPerCallUs: number;
  readonly rssMiB: { readonly idle: number; readonly over: readonly number[] };
}

function toText(report: Report, calls: number, concurrency: number): string {
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const { p50Ms, p99Ms, rssMiB } = report;
  return [
    `gateway on Node ${report.node}, ${report.door}`,
    `one call at a time    p50 ${ms(p50Ms.direct)} on the socket, ${ms(p50Ms.through)} through the gateway: ${ms(p50Ms.added)} more`,
    `                      p99 ${ms(p99Ms.direct)} on the socket, ${ms(p99Ms.through)} through the gateway`,
    `${concurrency} calls at a time    ${report.cpuPerCallUs.toFixed(0)} µs of the gateway’s CPU per call, ${report.callsPerSecond.toFixed(0)} calls/s`,
    `memory at rest        ${rssMiB.idle.toFixed(1)} MiB`,
    `over ${calls} calls     ${rssMiB.over.map((value) => value.toFixed(0)).join(' ')} MiB`,
    '',
  ].join('\n');
}

async function timed(client: CsiClient): Promise<number> {
  const startedMs = performance.now();
  await client.getCapacity({}, { timeoutMs: TIMEOUT_MS });
  return performance.now() - startedMs;
}

async function many(client: CsiClient, count: number, concurrency: number): Promise<void> {
  let left = count;
  const one = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      await client.getCapacity({}, { timeoutMs: TIMEOUT_MS });
    }
  };
  await Promise.all(Array.from({ length: concurrency }, one));
}

function mib(bytes: number): number {
  return bytes / 2 ** 20;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await exit;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
