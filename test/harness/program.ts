import { spawn } from 'node:child_process';

/** A program that is not ours, as a process that ends with this one. */
export interface Program {
  /** What it said last, and why it could not be started. */
  output(): string;
  readonly hasEnded: boolean;
  /** Asks it to end, and waits for that.
   * @param graceMs  after which it is killed; absent: never */
  stop(graceMs?: number): Promise<void>;
}

/** Starts a program. Whether it is ready, or there at all, its user finds out.
 * @param o.keptOutput  characters of its output that are kept
 * @param o.env         in place of ours */
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
  let said = '';
  const keep = (chunk: Buffer): void => {
    said = (said + chunk.toString()).slice(-o.keptOutput);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  let hasEnded = false;
  const exited = new Promise<void>((done) => {
    child.once('error', (error) => {
      said += error.message;
      done();
    });
    child.once('exit', () => done());
  });
  void exited.then(() => {
    hasEnded = true;
    process.removeListener('exit', killNow);
  });
  return {
    output: () => said,
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
