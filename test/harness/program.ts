import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort } from './free-port.ts';
import { until } from './until.ts';

/** A program as a child process that does not outlive this one. */
export interface Program {
  /** Undefined if it could not be started. */
  readonly pid: number | undefined;
  /** The end of its output, or why it could not be started. */
  output(): string;
  readonly hasEnded: boolean;
  /** Resolves with the exit status, whatever ends the program. */
  readonly exited: Promise<number | null>;
  /** Sends SIGTERM and waits until it has exited.
   * @param graceMs  time until it is killed; absent: it is not killed */
  stop(graceMs?: number): Promise<void>;
  /** Sends SIGKILL and waits until it has exited. */
  kill(): Promise<void>;
}

interface ProgramOptions {
  /** Default: that of this process. */
  readonly cwd?: string;
  /** How many characters of its output are kept; default: 200,000. */
  readonly keptOutput?: number;
  /** Default: the environment of this process. */
  readonly env?: NodeJS.ProcessEnv | undefined;
  /** A file to which its output is appended. */
  readonly logFile?: string | undefined;
}

/** Starts a program. The caller checks whether it started and when it is ready. */
export function startProgram(
  file: string,
  args: readonly string[],
  o: ProgramOptions = {},
): Program & {
  /** The first message that a program of Node sends. */
  readonly message: Promise<unknown>;
} {
  const { keptOutput = 200_000, cwd, env = process.env, logFile } = o;
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], cwd, env });
  const log = logFile === undefined ? undefined : createWriteStream(logFile, { flags: 'a' });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      log?.write(chunk);
      output = (output + chunk.toString()).slice(-keptOutput);
    });
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  let hasEnded = false;
  const exited = new Promise<number | null>((done) => {
    child.once('error', (error) => {
      output += error.message;
      done(null);
    });
    child.once('close', done);
  });
  void exited.then(() => {
    hasEnded = true;
    log?.end();
    process.removeListener('exit', killNow);
  });
  const message = once(child, 'message').then(([first]) => first as unknown);
  message.catch(() => undefined);
  return {
    pid: child.pid,
    output: () => output,
    get hasEnded() {
      return hasEnded;
    },
    exited,
    message,
    async stop(graceMs) {
      child.kill('SIGTERM');
      const timer = graceMs === undefined ? undefined : setTimeout(killNow, graceMs);
      await exited;
      clearTimeout(timer);
    },
    async kill() {
      killNow();
      await exited;
    },
  };
}

/** A process of sutler, or external-provisioner. */
export interface SutlerProcess extends Program {
  /** Of health and metrics. */
  readonly url: string;
}

const CLI = fileURLToPath(import.meta.resolve('#src/cli.ts'));

/** Starts a process of sutler with an HTTP endpoint. Resolves when it has announced that.
 * @param o.cli        of another version of sutler
 * @param o.env        beside PATH
 * @param o.logFolder  for a log by the name of the process */
export async function startSutlerProcess(
  args: readonly string[],
  o: {
    readonly cli?: string | undefined;
    readonly env?: Readonly<Record<string, string>>;
    readonly logFolder?: string;
  },
): Promise<SutlerProcess> {
  const { cli = CLI, env, logFolder } = o;
  const [name = ''] = args;
  const program = startProgram(
    process.execPath,
    ['--enable-source-maps', cli, ...args, '--http-endpoint=127.0.0.1:0'],
    {
      env: { PATH: process.env['PATH'], ...env },
      logFile: logFolder === undefined ? undefined : join(logFolder, `${name}.log`),
    },
  );
  const announced = program.message as Promise<{ facts: Readonly<Record<string, string>> }>;
  const { facts } = await Promise.race([announced, failed(name, program)]);
  return Object.assign(program, { url: facts['http'] ?? '' });
}

/** Starts a container with upstream's arguments. Resolves when it listens.
 * @param o.env      beside PATH
 * @param o.program  external-provisioner, in the place of sutler */
export async function startDropIn(o: {
  readonly args: readonly string[];
  readonly socket: string;
  /** Of the Lease. */
  readonly namespace: string;
  readonly env: Readonly<Record<string, string>>;
  readonly program?: string | undefined;
}): Promise<SutlerProcess> {
  const args = [
    `--csi-address=${o.socket}`,
    `--leader-election-namespace=${o.namespace}`,
    ...o.args,
  ];
  if (o.program === undefined) return startSutlerProcess(args, { env: o.env });
  // It sends no message when it has started, and has no endpoint without a port.
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const env = { PATH: process.env['PATH'], ...o.env };
  const program = startProgram(o.program, [...args, `--http-endpoint=127.0.0.1:${port}`], { env });
  const answers = () => fetch(url).then(Boolean, () => false);
  await Promise.race([until(answers, 'it listens', 90_000), failed(o.program, program)]);
  return Object.assign(program, { url });
}

function failed(name: string, { exited, output }: Program): Promise<never> {
  const failure = exited.then(() => Promise.reject(new Error(`${name} ended: ${output()}`)));
  failure.catch(() => undefined);
  return failure;
}
