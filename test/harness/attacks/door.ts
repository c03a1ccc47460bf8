import { type ChildProcess, fork } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { percentile } from '../../../bench/percentile.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { TlsMaterial } from '#src/runtime/tls-files.ts';
import { type CertificateOwner, makeCertificates, tlsFilesOf } from '../csi-certificates.ts';
import { makeFolder } from '../csi-folder.ts';
import { answerOk, CREATED_VOLUME, startRawDriver } from '../csi-raw-driver.ts';
import { GatewayProcess } from '../gateway-process.ts';
import type { CallerOrder, CallerReport } from './caller-main.ts';
import type { AttackOrder, AttackSummary } from './main.ts';
import type { AttackTarget } from './stranger.ts';

/** How strangers come to the gateway.
 * - tls: with a certificate of the authority but a name that is not allowed, each from an address
 *   of its own.
 * - tls, same address: the same, from the address of the allowed caller.
 * - plaintext: from this machine, as the allowed caller. */
export type Door = 'tls' | 'tls, same address' | 'plaintext';

/** What one attack by some strangers did to an allowed caller and to the gateway. */
export interface AttackOutcome {
  readonly door: Door;
  readonly attack: string;
  readonly strangers: number;
  readonly caller: CallerReport;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Resident memory in bytes. */
  readonly rssBefore: number;
  readonly rssPeak: number;
  /** Share of one processor that the gateway took. */
  readonly cpuShare: number;
  readonly summary: AttackSummary;
  /** How the gateway's process ended; '' if it did not. */
  readonly ending: string;
  readonly defects: readonly string[];
}

const SAMPLE_MS = 100;
/** Time for the strangers to end their connections. */
const END_MS = 5_000;

/** A gateway in front of a driver that answers at once, and an allowed caller of it. */
export class AttackedDoor {
  readonly gateway: GatewayProcess;
  /** Resident memory after ordinary work, before any attack. */
  readonly rssBefore: number;
  readonly #door: Door;
  readonly #caller: ChildProcess;
  readonly #target: AttackTarget;
  readonly #closers: Closers;

  private constructor(parts: {
    readonly door: Door;
    readonly gateway: GatewayProcess;
    readonly caller: ChildProcess;
    readonly target: AttackTarget;
    readonly closers: Closers;
    readonly rssBefore: number;
  }) {
    this.#door = parts.door;
    this.gateway = parts.gateway;
    this.#caller = parts.caller;
    this.#target = parts.target;
    this.#closers = parts.closers;
    this.rssBefore = parts.rssBefore;
  }

  /** Starts the gateway and the allowed caller, which does some ordinary work. */
  static async open(door: Door): Promise<AttackedDoor> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const driver = await startRawDriver(folder.file('csi.sock'), (call) => {
      if (call.path.endsWith('/CreateVolume')) return answerOk(call, CREATED_VOLUME);
      return call.path.endsWith('/DeleteVolume') && answerOk(call, new Uint8Array());
    });
    closers.add('driver', () => driver.close());
    const isTls = door !== 'plaintext';
    if (isTls) await makeCertificates(folder.path, 'IP:127.0.0.1');
    const gateway = await GatewayProcess.start([
      `--csi-address=${folder.file('csi.sock')}`,
      '--listen=dns:///127.0.0.1:0',
      '--http-endpoint=127.0.0.1:0',
      ...(isTls ? tlsFlags(folder.path) : []),
    ]);
    closers.add('gateway', () => gateway.stop());
    const address = parseAddress('gateway', gateway.address);
    if (address.kind !== 'tcp') throw new Error(gateway.address);
    const caller = startChild('caller-main.js');
    closers.add('caller', () => stopChild(caller));
    const order: CallerOrder = {
      address: gateway.address,
      tls: isTls ? await readMaterial(folder.path, 'jobs') : undefined,
    };
    caller.send(order);
    await once(caller, 'message');
    const tls = isTls ? await readMaterial(folder.path, 'audit') : undefined;
    const target = { host: address.host, port: address.port, tls };
    const rssBefore = await gateway.stableRss();
    return new AttackedDoor({ door, gateway, caller, target, closers, rssBefore });
  }

  /** Lets some strangers attack for a while, and measures. */
  async attack(name: string, strangers: number, durationMs: number): Promise<AttackOutcome> {
    const { gateway } = this;
    const startedMs = performance.now();
    const cpuBeforeMs = await gateway.cpuMs();
    let [rssPeak, cpuAfterMs, endedMs] = [this.rssBefore, cpuBeforeMs, startedMs];
    const sample = async (): Promise<void> => {
      rssPeak = Math.max(rssPeak, await gateway.rss());
      const nowMs = await gateway.cpuMs();
      if (!Number.isNaN(nowMs)) [cpuAfterMs, endedMs] = [nowMs, performance.now()];
    };
    const timer = setInterval(() => void sample(), SAMPLE_MS);
    this.#caller.send('start');
    const program = startChild('main.js');
    const ownAddresses = this.#door === 'tls';
    const target = this.#target;
    program.send({ attack: name, target, strangers, ownAddresses } satisfies AttackOrder);
    await waitAtMost(durationMs, () => gateway.hasEnded);
    const summary = await endAttack(program);
    this.#caller.send('stop');
    const [caller] = (await once(this.#caller, 'message')) as [CallerReport];
    clearInterval(timer);
    const { latenciesMs } = caller;
    return {
      door: this.#door,
      attack: name,
      strangers,
      caller,
      p50Ms: percentile(latenciesMs, 0.5),
      p99Ms: percentile(latenciesMs, 0.99),
      maxMs: percentile(latenciesMs, 1),
      rssBefore: this.rssBefore,
      rssPeak,
      cpuShare: (cpuAfterMs - cpuBeforeMs) / Math.max(1, endedMs - startedMs),
      summary,
      ending: gateway.ending,
      defects: gateway.defects,
    };
  }

  async close(): Promise<void> {
    await this.#closers.close();
  }
}

function tlsFlags(folder: string): readonly string[] {
  const { ca, cert, key } = tlsFilesOf(folder, 'gateway');
  return [
    `--tls-cert=${cert}`,
    `--tls-key=${key}`,
    `--tls-client-ca=${ca}`,
    '--tls-allowed-names=DNS:sutler-ingest,DNS:sutler-jobs',
  ];
}

async function readMaterial(folder: string, owner: CertificateOwner): Promise<TlsMaterial> {
  const files = tlsFilesOf(folder, owner);
  const [ca, cert, key] = await Promise.all([
    readFile(files.ca, 'utf8'),
    readFile(files.cert, 'utf8'),
    readFile(files.key, 'utf8'),
  ]);
  return { ca, cert, key, notAfterMs: Date.parse(new X509Certificate(cert).validTo) };
}

/** Starts a program of this folder. */
function startChild(file: string): ChildProcess {
  return fork(fileURLToPath(new URL(file, import.meta.url)), { stdio: 'inherit' });
}

async function endAttack(program: ChildProcess): Promise<AttackSummary> {
  const summary = once(program, 'message') as Promise<[AttackSummary]>;
  const timer = setTimeout(() => program.kill('SIGKILL'), END_MS);
  program.send('end');
  const ended = once(program, 'exit').then(() => [{ connections: NaN, rounds: NaN }] as const);
  const [result] = await Promise.race([summary, ended]);
  await ended;
  clearTimeout(timer);
  return result;
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const exited = once(child, 'exit');
  child.disconnect();
  await exited;
}

async function waitAtMost(ms: number, isOver: () => boolean): Promise<void> {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs && !isOver())
    await new Promise((resolve) => setTimeout(resolve, 50));
}
