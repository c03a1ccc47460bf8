import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { ProcessClock } from './process-clock.ts';

/** The environment in k8s/gateway/sidecar.yaml; it influences how much memory stays in use. */
const SIDECAR = readFileSync(new URL('../../../k8s/gateway/sidecar.yaml', import.meta.url), 'utf8');
const NODE_FLAGS = /NODE_OPTIONS, value: ([^}]+?) *}/.exec(SIDECAR)?.[1]?.split(' ');
const MALLOC_ARENA_MAX = /MALLOC_ARENA_MAX, value: '(\d+)' }/.exec(SIDECAR)?.[1];

/** A gateway as k8s/ runs it, in a process of its own. */
export class GatewayProcess {
  /** Of all its listeners, as it announced them. */
  readonly address: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, address: string) {
    this.#child = child;
    this.address = address;
  }

  /** Starts one with these flags.
   * @param clock  its clock, if that is to be shifted
   * @throws Error if it does not start; its log is in the message */
  static async start(args: readonly string[], clock?: ProcessClock): Promise<GatewayProcess> {
    const cli = fileURLToPath(import.meta.resolve('#src/cli.ts'));
    const child = spawn(
      process.execPath,
      [...(NODE_FLAGS ?? []), ...(clock?.nodeArgs ?? []), cli, 'csi-gateway', ...args],
      {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        env: { ...process.env, MALLOC_ARENA_MAX, ...clock?.env },
      },
    );
    const log: string[] = [];
    child.stderr?.on('data', (chunk: Buffer) => log.push(chunk.toString()));
    const end = new AbortController();
    const announced = once(child, 'message', end).then(
      ([message]) => (message as { facts: { listen: string } }).facts.listen,
    );
    const failed = once(child, 'exit', end).then(() => {
      throw new Error(`the gateway did not start: ${log.join('')}`);
    });
    try {
      return new GatewayProcess(child, await Promise.race([announced, failed]));
    } finally {
      end.abort();
      announced.catch(() => undefined);
      failed.catch(() => undefined);
    }
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Sends SIGTERM and waits until it has ended. */
  async stop(): Promise<void> {
    if (this.hasEnded) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await exited;
  }
}
