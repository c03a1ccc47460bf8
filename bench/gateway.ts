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
  for (let part = 0; part < RSS_SAMPLES && !stopping.aborted; part += 1) {
    await callMany(through, Math.round(flags.calls / RSS_SAMPLES), flags.concurrency);
    rss.push(await rssBytes(gateway));
  }
  const cpuPerCallUs = (((await cpuMs(gateway)) - cpuBefore) * 1_000) / flags.calls;
  const [p50Direct, p50Through] = [percentile(times.direct, 0.5), percentile(times.through, 0.5)];
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const mib = (bytes: number, digits = 0): string => (bytes / 2 ** 20).toFixed(digits);
  const transport = flags.tls ? 'TCP, mutual TLS 1.3' : 'unix socket';
  context.stdout.write(
    `gateway on Node ${process.version}, ${transport}\n` +
      `one call at a time    p50 ${ms(p50Direct)} on the socket, ${ms(p50Through)} through the ` +
      `gateway: ${ms(p50Through - p50Direct)} more\n` +
      `${flags.concurrency} calls at a time    ${cpuPerCallUs.toFixed(0)} µs of the gateway’s CPU per call\n` +
      `memory when idle      ${mib(idleRss, 1)} MiB\n` +
      `over ${flags.calls} calls     ${rss.map((bytes) => mib(bytes)).join(' ')} MiB\n`,
  );
  context.stop(0);
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

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill('SIGTERM');
  await exit;
}
