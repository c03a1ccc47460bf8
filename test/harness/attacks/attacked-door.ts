import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { percentile } from '../../../bench/percentile.ts';
import type { GatewayProcess } from '../gateway-process.ts';
import type { CallerOrder, CallerReport } from './caller-main.ts';
import { type Door, type DoorKind, openDoor } from './door.ts';
import type { AttackMessage, AttackSummary } from './main.ts';

/** What one attack by some strangers did to an allowed caller and to the gateway. */
export interface AttackOutcome {
  readonly door: DoorKind;
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
const END_MS = 20_000;

/** A door with an allowed caller of it and with attackers, each in a process of its own. */
export class AttackedDoor {
  /** Resident memory after ordinary work, before any attack. */
  readonly rssBefore: number;
  readonly #door: Door;
  readonly #attackers: ChildProcess;
  readonly #caller: ChildProcess;

  private constructor(parts: {
    readonly door: Door;
    readonly attackers: ChildProcess;
    readonly caller: ChildProcess;
    readonly rssBefore: number;
  }) {
    this.#door = parts.door;
    this.#attackers = parts.attackers;
    this.#caller = parts.caller;
    this.rssBefore = parts.rssBefore;
  }

  get gateway(): GatewayProcess {
    return this.#door.gateway;
  }

  /** Starts all of them.
   * @param warmUpCalls  how many calls the allowed caller makes at once, so that the memory of the
   *   gateway can be compared afterwards; 0: none */
  static async open(kind: DoorKind, warmUpCalls: number): Promise<AttackedDoor> {
    const door = await openDoor(kind);
    const { closers, gateway } = door;
    const caller = startChild('caller-main.js');
    closers.add('caller', () => stopChild(caller));
    const order: CallerOrder = {
      address: gateway.address,
      tls: door.callerTls,
      warmUpCalls,
    };
    caller.send(order);
    await once(caller, 'message');
    const attackers = startChild('main.js');
    closers.add('attackers', () => stopChild(attackers));
    const rssBefore = await (warmUpCalls > 0 ? gateway.stableRss() : gateway.rss());
    return new AttackedDoor({ door, attackers, caller, rssBefore });
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
    const { kind, target } = this.#door;
    this.#order({ attack: name, target, strangers, ownAddresses: kind === 'tls' });
    await waitAtMost(durationMs, () => gateway.hasEnded);
    const summary = await this.#endAttack();
    this.#caller.send('stop');
    const [caller] = (await once(this.#caller, 'message')) as [CallerReport];
    clearInterval(timer);
    const { latenciesMs } = caller;
    return {
      door: kind,
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

  /** Lets the allowed caller work for a second, without attackers. */
  async work(): Promise<void> {
    this.#caller.send('start');
    await waitAtMost(1_000, () => this.gateway.hasEnded);
    this.#caller.send('stop');
    await once(this.#caller, 'message');
  }

  async close(): Promise<void> {
    await this.#door.closers.close();
  }

  #order(message: AttackMessage): void {
    this.#attackers.send(message);
  }

  async #endAttack(): Promise<AttackSummary> {
    const reported = once(this.#attackers, 'message', { signal: AbortSignal.timeout(END_MS) });
    this.#order('end');
    const [summary] = (await reported) as [AttackSummary];
    return summary;
  }
}

/** Starts a program of this folder. */
function startChild(file: string): ChildProcess {
  return fork(fileURLToPath(new URL(file, import.meta.url)), { stdio: 'inherit' });
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
