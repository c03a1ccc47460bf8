import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Report } from '../../chaos/report.ts';

const MAIN = fileURLToPath(new URL('../../chaos/main.js', import.meta.url));

export interface ChaosRun {
  readonly code: number;
  /** The output of --json. */
  readonly report: Report & { readonly passed: boolean };
}

/** Runs the chaos command as a child process. */
export function runChaos(args: readonly string[]): Promise<ChaosRun> {
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [MAIN, '--json', ...args],
      { maxBuffer: 64 * 2 ** 20 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : Number(error.code ?? -1);
        if (stdout === '')
          reject(new Error(`chaos ended with ${code} and no report:\n${stderr.slice(-4_000)}`));
        else resolve({ code, report: JSON.parse(stdout) as ChaosRun['report'] });
      },
    );
  });
}

/** The violations of a report, by kind; {} if there are none. */
export function violations({ report }: ChaosRun): Readonly<Record<string, readonly string[]>> {
  const all = { ...report.verdict, unfinished: report.unfinished, troubles: report.troubles };
  return Object.fromEntries(
    Object.entries(all).filter(([, lines]: [string, readonly string[]]) => lines.length > 0),
  );
}
