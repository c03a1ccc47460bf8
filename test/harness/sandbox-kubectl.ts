import { execFile } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

export interface KubectlResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The kubectl programs to test with: the one on PATH, and more in SUTLER_TEST_KUBECTLS (separated
 * as PATH is). */
export async function findKubectls(env: NodeJS.ProcessEnv): Promise<string[]> {
  const onPath = (env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'kubectl'));
  const more = (env['SUTLER_TEST_KUBECTLS'] ?? '').split(delimiter).filter((path) => path !== '');
  const found: string[] = [];
  for (const path of onPath) {
    if (found.length === 0 && (await isProgram(path))) found.push(path);
  }
  return [...found, ...more];
}

function isProgram(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** Runs kubectl with the given kubeconfig and cache folder.
 * @param input  its standard input, which `-f -` reads */
export function runKubectl(
  program: { readonly path: string; readonly kubeconfig: string; readonly cacheDir: string },
  args: readonly string[],
  input = '',
): Promise<KubectlResult> {
  return new Promise((resolve) => {
    const child = execFile(
      program.path,
      ['--kubeconfig', program.kubeconfig, '--cache-dir', program.cacheDir, ...args],
      { timeout: 30_000, env: { PATH: '/usr/bin:/bin', HOME: program.cacheDir } },
      (error, stdout, stderr) =>
        resolve({
          code: error === null ? 0 : typeof error.code === 'number' ? error.code : 1,
          stdout,
          stderr,
        }),
    );
    child.stdin?.end(input);
  });
}
