import { spawn } from 'node:child_process';

/** A third-party program, as a child process that does not outlive this one. */
export interface Program {
  /** Undefined if it could not be started. */
  readonly pid: number | undefined;
  /** The end of its output, or why it could not be started. */
  output(): string;
  readonly hasEnded: boolean;
  /** Sends SIGTERM and waits until it has exited.
   * @param graceMs  time until it is killed; absent: it is not killed */
  stop(graceMs?: number): Promise<void>;
}

/** Starts a program. The caller checks whether it started and when it is ready.
 * @param o.keptOutput  how many characters of its output are kept
 * @param o.env         default: the environment of this process */
export function startProgram(
  file: string,
  args: readonly string[],
  o: { readonly cwd: string; readonly keptOutput: number; readonly env?: NodeJS.ProcessEnv },
): Program {
  const child = spawn(file, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    cwd: o.cwd,
    env: o.env ?? process.env,
  });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-o.keptOutput);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  let hasEnded = false;
  const exited = new Promise<void>((done) => {
    child.once('error', (error) => {
      output += error.message;
      done();
    });
    child.once('exit', () => done());
  });
  void exited.then(() => {
    hasEnded = true;
    process.removeListener('exit', killNow);
  });
  return {
    pid: child.pid,
    output: () => output,
    get hasEnded() {
      return hasEnded;
    },
    async stop(graceMs) {
      child.kill('SIGTERM');
      const timer = graceMs === undefined ? undefined : setTimeout(killNow, graceMs);
      await exited;
      clearTimeout(timer);
    },
  };
}
