import { commandFlags } from '#src/operator/flags.ts';
import type { FlagSpec, FlagTable } from '#src/runtime/flags.ts';
import type { CommandHelp } from '#src/runtime/parse-flags.ts';
import { processes } from '../sandbox/processes.ts';

const INTRODUCTION = `# Flags

Generated from the tables in \`src/<process>/flags.ts\` by \`npm run generate:flags\`; edit those.

Write flags as \`--name=value\` or \`--name value\`, and switches as \`--name\` or \`--name=false\`. If a
flag is given several times, the last value counts; lists take all values. Durations are in Go's
notation (\`300ms\`, \`10s\`, \`1m30s\`). If a flag is absent, its environment variable is read:
\`SUTLER_\` and the name in capitals, with underscores (\`SUTLER_REDIS_URL\`); some have another one too,
which is read first.

Every process accepts the flags of the other processes and ignores them; at its start it logs which.
Commands, whose exit statuses are below, take their own flags and
[those of every command](#every-command) only. An unknown flag or an invalid
value ends the process with status 2 and one line that names it.

_Per driver_: also a key of a driver's section in \`--driver-config\` ([drivers](drivers.md)), for
which the flag is then the default.

_Upstream_ says whether external-provisioner has the flag: _same_, or how it differs there.
`;

/** The text of docs/flags.md. */
export function flagsPage(): string {
  const sections = Object.entries(processes).map(([name, { summary, flags, command }]) =>
    [
      `## ${name}`,
      '',
      `\`sutler ${name}\` ${summary}.`,
      '',
      ...(command === undefined ? [] : commandParts(name, command)),
      ...flagItems(command === undefined ? flags : ownFlags(flags)),
      '',
    ].join('\n'),
  );
  const shared = ['## Every command', '', ...flagItems(commandFlags), ''].join('\n');
  return `${INTRODUCTION}\n${[...sections, shared].join('\n')}`;
}

/** Those of a command that not every command has. */
function ownFlags(flags: FlagTable): FlagTable {
  return Object.fromEntries(
    Object.entries(flags).filter(([name]) => !Object.hasOwn(commandFlags, name)),
  );
}

function commandParts(name: string, { exits, examples }: CommandHelp): readonly string[] {
  return [
    '```sh',
    ...examples.map((each) => `sutler ${name} ${each}`.trimEnd()),
    '```',
    '',
    'Exit status:',
    '',
    ...Object.entries(exits).map(([code, text]) => `- ${code}: ${text}.`),
    '',
    'Flags:',
    '',
  ];
}

function flagItems(table: FlagTable): readonly string[] {
  return Object.entries(table)
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, spec]) => flagItem(name, spec));
}

function flagItem(name: string, spec: FlagSpec): string {
  const short = spec.short === undefined ? '' : `, **\`-${spec.short}\`**`;
  const fallback = spec.type === 'labels' ? '' : String(spec.default ?? '');
  const facts = [
    typeText(spec),
    ...(fallback === '' ? [] : [`default \`${fallback}\``]),
    ...(spec.env === undefined ? [] : [`environment \`${spec.env}\``]),
    ...(spec.perDriver === true ? ['per driver'] : []),
    ...(spec.upstream === undefined ? [] : [`upstream: ${spec.upstream}`]),
  ];
  return `- **\`--${name}\`**${short} (${facts.join('; ')}): ${spec.help}`;
}

function typeText(spec: FlagSpec): string {
  if (spec.type === 'durationMs') return 'duration';
  if (spec.type === 'strings') return 'list';
  if (spec.type === 'string' && spec.values) return spec.values.join(' or ');
  return spec.type;
}
