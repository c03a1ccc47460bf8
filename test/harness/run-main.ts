import assert from 'node:assert/strict';
import { flagsOf } from '#src/dispatch.ts';
import { processes } from '#src/processes.ts';
import type { Host, Invocation } from '#src/runtime/process.ts';

/** A main that runs inside this process. */
export interface Running {
  /** What it announced. */
  readonly facts: Readonly<Record<string, string>>;
  /** Of its HTTP endpoint. */
  readonly url: string;
  /** What it logged. */
  readonly output: readonly string[];
  /** Ends it as SIGTERM does. */
  stop(): Promise<void>;
}

/** What /readyz says. */
export async function readiness({ url }: Running): Promise<string> {
  return (await fetch(`${url}/readyz`)).text();
}

export async function isReady({ url }: Running): Promise<boolean> {
  return (await fetch(`${url}/readyz`)).status === 200;
}

/** Runs a main inside this process, with a substitute for Node's `process`. */
export async function runMain(
  main: (invocation: Invocation) => Promise<void>,
  argv: readonly string[],
  env: Host['env'],
): Promise<Running> {
  const listeners = new Map<string, () => void>();
  const output: string[] = [];
  let exit: (code: number) => void = () => undefined;
  const exited = new Promise<number>((resolve) => (exit = resolve));
  let report: (facts: Running['facts']) => void = () => undefined;
  const announced = new Promise<Running['facts']>((resolve) => (report = resolve));
  const host: Host = {
    argv: [],
    env,
    pid: 1,
    stdout: { write: (text: string) => output.push(text) },
    stderr: { write: (text: string) => output.push(text) },
    on: (event: string, listener: (error: never) => void) =>
      listeners.set(event, listener as () => void),
    exit,
    send: (message: unknown) => report((message as Pick<Running, 'facts'>).facts),
  };
  void main({ host, argv, known: flagsOf(processes) });
  const facts = await Promise.race([
    announced,
    exited.then((code) => Promise.reject(new Error(`ended with ${code}: ${output.join('')}`))),
  ]);
  return {
    facts,
    url: facts['http'] ?? '',
    output,
    async stop() {
      listeners.get('SIGTERM')?.();
      assert.equal(await exited, 0);
    },
  };
}
