import type { FlagTable } from './runtime/flags.ts';
import type { Host, Invocation } from './runtime/process.ts';
import { strikeCredentials } from './runtime/loggable.ts';
import type { CommandHelp } from './runtime/parse-flags.ts';
import { escapeControls } from './runtime/printable.ts';
import { version } from './runtime/version.ts';

/** A process of sutler: what `sutler NAME` starts. */
export interface Process {
  readonly flags: FlagTable;
  readonly summary: string;
  /** Set for a command, which does one thing and ends. */
  readonly command?: CommandHelp;
  /** Imports the process; only the chosen process is loaded. */
  readonly load: () => Promise<{ readonly main: (invocation: Invocation) => Promise<void> }>;
}

/** The flags of all processes that are no commands: each accepts the flags of the others, so that
 * one argument list serves all. If several have a flag, the first process counts: ingest, whose
 * flags say which of them each driver may set. */
export function flagsOf(processes: Readonly<Record<string, Process>>): FlagTable {
  const tables = Object.values(processes).map(({ flags, command }) => (command ? {} : flags));
  return Object.assign({}, ...tables.toReversed()) as FlagTable;
}

/** Flags of the command line as a whole. */
const OWN_FLAGS: ReadonlySet<string> = new Set(['--help', '-h', '--version']);

/** The process that runs if the first argument is a flag, or there is none: it replaces
 * external-provisioner, whose arguments are only flags. */
const WITHOUT_NAME = 'all';

/** Runs the process that the first argument names, or prints the version or the list of processes.
 * @returns the exit code if no process was started */
export async function dispatch(
  host: Host,
  processes: Readonly<Record<string, Process>>,
): Promise<number | undefined> {
  const { name, argv } = splitName(host.argv.slice(2));
  const chosen = Object.hasOwn(processes, name) ? processes[name] : undefined;
  if (chosen !== undefined) {
    const { main } = await chosen.load();
    await main({ host, argv, known: flagsOf(processes) });
    return undefined;
  }
  if (name === '--version') {
    host.stdout.write(`sutler ${version}\n`);
    return 0;
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    host.stdout.write(renderProcesses(processes));
    return 0;
  }
  const names = Object.keys(processes);
  const shown = escapeControls(strikeCredentials(name));
  const choice = `choose ${names.join(', ')}`;
  host.stderr.write(`sutler: there is no process or command "${shown}"; ${choice}\n`);
  return 2;
}

function splitName(given: readonly string[]): { name: string; argv: readonly string[] } {
  const [name = '', ...argv] = given;
  const isName = name !== '' && (!name.startsWith('-') || OWN_FLAGS.has(name));
  return isName ? { name, argv } : { name: WITHOUT_NAME, argv: given };
}

function renderProcesses(processes: Readonly<Record<string, Process>>): string {
  const rowsOf = (areCommands: boolean): readonly string[] =>
    Object.entries(processes)
      .filter(([, { command }]) => (command !== undefined) === areCommands)
      .map(([process, { summary }]) => `  ${process.padEnd(16)}${summary}`);
  const usage =
    'Usage: sutler [PROCESS] [flags]    (sutler PROCESS --help lists its flags; ' +
    `without PROCESS: ${WITHOUT_NAME})`;
  const commands = ['', 'Commands, which do one thing and end:', ...rowsOf(true)];
  return [usage, '', ...rowsOf(false), ...commands, ''].join('\n');
}
