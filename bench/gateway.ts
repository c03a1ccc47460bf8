import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { CsiClient } from '#src/gateway-client/client.ts';
import { openClientTls } from '#src/gateway-client/credentials.ts';
import { type Address, formatAddress } from '#src/runtime/address.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { freePort } from '../test/harness/free-port.ts';
import { flags as table, summary } from './gateway-flags.ts';
import { percentile } from './percentile.ts';
import { cpuMs, rssBytes } from './proc.ts';
import { splitArgs } from './split-args.ts';

const CLI = fileURLToPath(new URL('../sandbox/cli.js', import.meta.url));
const CERTIFICATES = fileURLToPath(new URL('../../k8s/gateway/certificates.sh', import.meta.url));
const TIMEOUT_MS = 30_000;
const IDLE_MS = 5_000;
const RSS_SAMPLES = 10;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:gateway', summary, table, start },
);

async function start(context: ProcessContext<typeof table>): Promise<void> {
  const { flags, closers, log, stopping } = context;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-bench-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const socket = join(folder, 'csi.sock');
  const listen: Address = flags.tls
    ? { kind: 'tcp', host: '127.0.0.1', port: await freePort() }
    : { kind: 'unix', path: join(folder, 'gw.sock') };
  if (flags.tls)
    execFileSync(CERTIFICATES, [folder], {
      env: { ...context.env, GATEWAY_NAMES: 'IP:127.0.0.1' },
    });
  const file = (name: string): string => (flags.tls ? join(folder, name) : '');
  const tls = await openClientTls(
    {
      gatewayTlsCa: file('ca.crt'),
      gatewayTlsCert: file('jobs.crt'),
      gatewayTlsKey: file('jobs.key'),
      gatewayTlsServerName: '',
    },
    log,
  );
  closers.add('TLS files', () => tls?.source.close());

  const startChild = async (
    nodeFlags: readonly string[],
    args: readonly string[],
  ): Promise<number> => {
    const child = spawn(process.execPath, [...nodeFlags, CLI, ...args], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    closers.add(args[0] ?? '', () => stopChild(child));
    await once(child, 'message');
    if (child.pid === undefined) throw new Error(`${args[0]} did not start`);
    return child.pid;
  };
  await startChild(
    [],
    ['sandbox-driver', `--csi-address=${socket}`, `--data-dir=${join(folder, 'data')}`],
  );
  const tlsArgs = [
    `--tls-cert=${file('gateway.crt')}`,
    `--tls-key=${file('gateway.key')}`,
    `--tls-client-ca=${file('ca.crt')}`,
    '--tls-allowed-names=DNS:sutler-jobs',
  ];
  const gateway = await startChild(splitArgs(flags.nodeFlags), [
    'csi-gateway',
    `--csi-address=${socket}`,
    `--listen=${formatAddress(listen)}`,
    '--http-endpoint=127.0.0.1:0',
    ...(flags.tls ? tlsArgs : []),
  ]);
  const direct = new CsiClient({ address: { kind: 'unix', path: socket } });
  const through = new CsiClient({
    address: listen,
    tls,
  });
  closers.add('clients', () => [direct, through].forEach((client) => client.close()));

  await systemClock.sleep(IDLE_MS, stopping);
  const idleRss = await rssBytes(gateway);
  for (let i = 0; i < 500; i += 1) await Promise.all([timeCall(direct), timeCall(through)]);
  const times = { direct: [] as number[], through: [] as number[] };
  for (let i = 0; i < flags.idleCalls && !stopping.aborted; i += 1) {
    times.direct.push(await timeCall(direct));
    times.through.push(await timeCall(through));
  }
  const rss: number[] = [];
  const cpuBefore = await cpuMs(gateway);
  const startedMs = performance.now();
  for (let part = 0; part < RSS_SAMPLES && !stopping.aborted; part += 1) {
    await callMany(through, Math.round(flags.calls / RSS_SAMPLES), flags.concurrency);
    rss.push(await rssBytes(gateway));
  }
  const wallMs = performance.now() - startedMs;
  const cpuPerCallUs = (((await cpuMs(gateway)) - cpuBefore) * 1_000) / flags.calls;
  const [p50Direct, p50Through] = [percentile(times.direct, 0.5), percentile(times.through, 0.5)];
  const report = {
    node: process.version,
    transport: flags.tls ? 'TCP, mutual TLS 1.3' : 'unix socket',
    p50Ms: { direct: p50Direct, through: p50Through, added: p50Through - p50Direct },
    p99Ms: { direct: percentile(times.direct, 0.99), through: percentile(times.through, 0.99) },
    callsPerSecond: (flags.calls * 1_000) / wallMs,
    cpuPerCallUs,
    rssMiB: { idle: mib(idleRss), over: rss.map(mib) },
  };
  context.stdout.write(
    flags.json ? `${JSON.stringify(report)}\n` : toText(report, flags.calls, flags.concurrency),
  );
  context.stop(0);
}

interface Report {
  readonly node: string;
  readonly transport: string;
  readonly p50Ms: { readonly direct: number; readonly through: number; readonly added: number };
  readonly p99Ms: { readonly direct: number; readonly through: number };
  readonly callsPerSecond: number;
  readonly cpuPerCallUs: number;
  readonly rssMiB: { readonly idle: number; readonly over: readonly number[] };
}

function toText(report: Report, calls: number, concurrency: number): string {
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const both = (times: { readonly direct: number; readonly through: number }): string =>
    `${ms(times.direct)} on the socket, ${ms(times.through)} through the gateway`;
  const { p50Ms, p99Ms, rssMiB } = report;
  return [
    `gateway on Node ${report.node}, ${report.transport}`,
    `one call at a time    p50 ${both(p50Ms)}: ${ms(p50Ms.added)} more`,
    `                      p99 ${both(p99Ms)}`,
    `${concurrency} calls at a time    ${report.cpuPerCallUs.toFixed(0)} µs of the gateway’s CPU ` +
      `per call, ${report.callsPerSecond.toFixed(0)} calls/s`,
    `memory when idle      ${rssMiB.idle.toFixed(1)} MiB`,
    `over ${calls} calls     ${rssMiB.over.map((value) => value.toFixed(0)).join(' ')} MiB`,
    '',
  ].join('\n');
}

async function timeCall(client: CsiClient): Promise<number> {
  const startedMs = performance.now();
  await client.getCapacity({}, { timeoutMs: TIMEOUT_MS });
  return performance.now() - startedMs;
}

async function callMany(client: CsiClient, count: number, concurrency: number): Promise<void> {
  let left = count;
  const callUntilNoneLeft = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      await client.getCapacity({}, { timeoutMs: TIMEOUT_MS });
    }
  };
  await Promise.all(Array.from({ length: concurrency }, callUntilNoneLeft));
}

function mib(bytes: number): number {
  return bytes / 2 ** 20;
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await exit;
}
