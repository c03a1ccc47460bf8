import { processes } from './processes.ts';
import { renderMarkdown } from '#src/runtime/flag-help.ts';
import { renderMarkdown } from '#src/runtime/flags.ts';

const INTRODUCTION = `# Flags

Generated from the tables in \`src/<process>/flags.ts\` by \`npm run generate:flags\`; edit those.

Write flags as \`--name=value\` or \`--name value\`, and switches as \`--name\` or \`--name=false\`. If a
flag is given several times, the last value counts; lists take all values. Durations are in Go's
notation (\`300ms\`, \`10s\`, \`1m30s\`). If a flag is absent, its environment variables are read.

Every process accepts the flags of the other processes and ignores them; at \`-v=4\` it logs which.
An unknown flag or an invalid value ends the process with status 2 and one line that names it.
`;

/** The text of docs/flags.md. */
export function flagsDocument(): string {
  const sections = Object.entries(processes).map(([name, { summary, flags }]) =>
    renderMarkdown(name, `\`sutler ${name}\` ${summary}.`, flags),
  );
  return `${INTRODUCTION}\n${sections.join('\n')}`;
}
