import type { FlagTable } from './runtime/flags.ts';
import type { Host, Invocation } from './runtime/process.ts';
import { strikeCredentials } from './runtime/loggable.ts';
import { escapeControls } from './runtime/printable.ts';
import { idleFlags, retiredFlags } from './runtime/retired-flags.ts';
import { version } from './runtime/version.ts';

/** A process of sutler: what `sutler NAME` starts. */
export interface Process {
  readonly flags: FlagTable;
  readonly summary: string;
  /** Imports the process; only the one that is to run is loaded. */
  readonly load: () => Promise<{ readonly main: (invocation: Invocation) => Promise<void> }>;
}

/** The flags of all processes: each accepts those of the others, so that one argument list serves
 * all. */
export function flagsOf(processes: Readonly<Record<string, Process>>): FlagTable {
  const tables = Object.values(processes).map(({ flags }) => flags);
  return Object.assign({}, ...tables) as FlagTable;
}

/** Runs the process that the first argument names, or prints the version or the list of processes.
 * @returns the exit code where no process was started */
export async function dispatch(
  host: Host,
  processes: Readonly<Record<string, Process>>,
): Promise<number | undefined> {
  const [name = '--help', ...argv] = host.argv.slice(2);
  const chosen = Object.hasOwn(processes, name) ? processes[name] : undefined;
  if (chosen !== undefined) {
    const { main } = await chosen.load();
    const known = flagsOf(processes);
    await main({ host, argv, known, idle: idleFlags, retired: retiredFlags });
    return undefined;
  }
  if (name === '--version') {
    host.stdout.write(`sutler ${version}\n`);
    return 0;
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    const rows = Object.entries(processes).map(
      ([process, { summary }]) => `  ${process.padEnd(16)}${summary}`,
    );
    const usage = 'Usage: sutler PROCESS [flags]    (sutler PROCESS --help lists its flags)';
    host.stdout.write([usage, '', ...rows, ''].join('\n'));
    return 0;
  }
  const names = Object.keys(processes).join(', ');
  const shown = escapeControls(strikeCredentials(name));
  host.stderr.write(`sutler: there is no process "${shown}"; choose ${names}\n`);
  return 2;
}
