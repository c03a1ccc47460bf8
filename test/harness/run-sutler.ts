import { dispatch } from '#src/dispatch.ts';
import { processes } from '#src/processes.ts';

export interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command of sutler in this process, which is much faster than in one of its own.
 * @param table  the commands that there are
 * @returns what it has printed, and its exit status */
export async function runSutler(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  table = processes,
): Promise<Ended> {
  let out = '';
  let err = '';
  let exited: number | undefined;
  const code = await dispatch(
    {
      argv: [process.execPath, 'sutler', ...args],
      env,
      pid: process.pid,
      stdout: { write: (text) => (out += text) },
      stderr: { write: (text) => (err += text) },
      on: () => undefined,
      exit: (status) => (exited ??= status),
    },
    table,
  );
  return { code: exited ?? code ?? 0, out, err };
}
