import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { main } from '#src/csi-gateway/main.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { parseAddress } from '#src/runtime/address.ts';
import type { Host } from '#src/runtime/process.ts';
import { main as driverMain } from '../../sandbox/driver/main.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

/** A substitute for Node's `process`, so that main runs inside the test process. */
function fakeHost(): {
  readonly host: Host;
  readonly errors: string[];
  readonly facts: () => Record<string, string> | undefined;
  readonly exited: Promise<number>;
  signal(name: string): void;
} {
  const listeners = new Map<string, () => void>();
  const errors: string[] = [];
  let facts: Record<string, string> | undefined;
  let exit: (code: number) => void = () => undefined;
  const exited = new Promise<number>((resolve) => (exit = resolve));
  const host: Host = {
    argv: [],
    env: {},
    pid: 1,
    stdout: { write: () => true },
    stderr: { write: (text: string) => errors.push(text) },
    on: (event: string, listener: (error: never) => void) =>
      listeners.set(event, listener as () => void),
    exit,
    send: (message: unknown) => {
      facts = (message as { facts: Record<string, string> }).facts;
    },
  };
  return { host, errors, facts: () => facts, exited, signal: (name) => listeners.get(name)?.() };
}

describe('csi-gateway main', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  before(async () => (folder = await makeFolder()));
  after(() => folder.remove());

  it('becomes ready with its driver and exits with 0 on SIGTERM (Q-50, Q-52)', async () => {
    const gateway = fakeHost();
    const listen = `unix://${folder.file('gw.sock')}`;
    const csi = folder.file('csi.sock');
    const argv = [
      `--csi-address=${csi}`,
      `--listen=${listen}`,
      '--http-endpoint=127.0.0.1:0',
      '--metrics-path=/m',
      '--grace-period=1s',
    ];
    void main({ host: gateway.host, argv, known: {} });
    await until(() => gateway.facts() !== undefined, 'announced');
    const url = gateway.facts()?.['http'] ?? '';
    const waiting = await fetch(`${url}/readyz`);
    assert.equal(waiting.status, 503);
    assert.match(await waiting.text(), /driver: .*(ENOENT|not connected)/);
    assert.equal((await fetch(`${url}/healthz`)).status, 200);

    const driver = fakeHost();
    void driverMain({
      host: driver.host,
      argv: [`--csi-address=${csi}`, `--data-dir=${folder.file('data')}`],
      known: {},
    });
    await until(async () => (await fetch(`${url}/readyz`)).status === 200, 'ready');
    const client = new CsiClient({ address: parseAddress('gateway', listen) });
    const { volume } = await client.createVolume(volumeRequest('m'), { timeoutMs: 30_000 });
    assert.ok(existsSync(volume?.volumeContext['directory'] ?? ''));
    client.close();
    const metrics = await fetch(`${url}/m`);
    assert.equal(metrics.status, 200, 'metrics are served at --metrics-path (Q-50)');
    const text = await metrics.text();
    assert.match(text, /^csi_sidecar_operations_seconds_count/m);
    assert.match(
      text,
      /^process_start_time_seconds \d/m,
      'the metrics contain the start time (Q-52)',
    );

    gateway.signal('SIGTERM');
    assert.equal(await gateway.exited, 0);
    driver.signal('SIGTERM');
    assert.equal(await driver.exited, 0);
    assert.ok(!existsSync(folder.file('gw.sock')));
  });

  for (const [argv, message] of [
    [['--listen=tcp://x'], /--listen: "tcp:\/\/x" is not an address/],
    [['--listen=dns:///0.0.0.0:0'], /loopback only/],
    [['--listen=dns:///0.0.0.0:0', '--tls-cert=/c', '--tls-key=/k'], /--tls-client-ca missing/],
    [['--tls-allowed-names=DNS:a'], /--tls-cert and --tls-key and --tls-client-ca missing/],
    [['--tls-cert=/c', '--tls-key=/k', '--tls-client-ca=/ca'], /--tls-allowed-names missing/],
    [
      ['--tls-cert=/c', '--tls-key=/k', '--tls-client-ca=/ca', '--tls-allowed-names=*.svc'],
      /is a pattern/,
    ],
    [
      ['--tls-cert=/c', '--tls-key=/k', '--tls-client-ca=/nonexistent', '--tls-allowed-names=a'],
      /--tls-client-ca \/nonexistent: ENOENT/,
    ],
    [['--max-in-flight=0'], /--max-in-flight/],
    [['--listen='], /--listen/],
    [['--csi-address=relative'], /--csi-address/],
    [['--timeout=0'], /--timeout/],
    [['--grace-period=soon'], /--grace-period.*duration/],
  ] as const) {
    it(`exits with 2 and one line for ${argv.join(' ')}`, async () => {
      const gateway = fakeHost();
      await main({ host: gateway.host, argv, known: {} });
      assert.equal(await gateway.exited, 2);
      const messages = gateway.errors.filter((line) => line.startsWith('sutler csi-gateway:'));
      assert.equal(messages.length, 1);
      assert.match(messages[0] ?? '', message);
      assert.equal((messages[0] ?? '').trimEnd().split('\n').length, 1);
    });
  }

  it('exits with 2 if its socket is in use', async () => {
    const argv = [
      `--listen=unix://${folder.file('twice.sock')}`,
      '--csi-address=/nonexistent.sock',
    ];
    const first = fakeHost();
    void main({ host: first.host, argv, known: {} });
    await until(() => first.facts() !== undefined, 'announced');
    const second = fakeHost();
    await main({ host: second.host, argv, known: {} });
    assert.equal(await second.exited, 2);
    assert.match(second.errors.join(''), /in use/);
    first.signal('SIGINT');
    assert.equal(await first.exited, 0);
  });

  it('imports neither the Kubernetes client nor Redis', () => {
    const root = dirname(dirname(fileURLToPath(import.meta.resolve('#src/csi-gateway/main.ts'))));
    const seen = new Set<string>();
    const packages = new Set<string>();
    const collectImports = (file: string): void => {
      if (seen.has(file)) return;
      seen.add(file);
      for (const [, target = ''] of readFileSync(file, 'utf8').matchAll(
        /(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g,
      )) {
        if (target.startsWith('.')) collectImports(normalize(join(dirname(file), target)));
        else packages.add(target);
      }
    };
    collectImports(join(root, 'csi-gateway/main.js'));
    assert.ok(readdirSync(join(root, 'csi-gateway')).length > 5 && seen.size > 10);
    const foreign = [...packages].filter(
      (name) =>
        !name.startsWith('node:') &&
        !/^(@bufbuild\/protobuf(\/.*)?|@grpc\/grpc-js|pino|prom-client|quick-lru)$/.test(name),
    );
    assert.deepEqual(foreign, []);
  });

  it('runs as a child process through the command line', async () => {
    const cli = fileURLToPath(import.meta.resolve('#src/cli.ts'));
    const listen = `unix://${folder.file('child.sock')}`;
    const child = spawn(
      process.execPath,
      [cli, 'csi-gateway', `--listen=${listen}`, '--csi-address=/nonexistent.sock'],
      {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      },
    );
    const ended = once(child, 'exit') as Promise<[number | null]>;
    await Promise.race([once(child, 'message'), ended]);
    child.kill('SIGTERM');
    const [code] = await ended;
    assert.equal(code, 0);
  });
});
