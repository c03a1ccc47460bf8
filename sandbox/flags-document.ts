import { processes } from './processes.ts';
import { renderMarkdown } from '#src/runtime/flag-help.ts';

const INTRODUCTION = `# Flags

Generated from the tables in \`src/<process>/flags.ts\` by \`npm run generate:flags\`; edit those.

Flags are written \`--name=value\` or \`--name value\`, switches \`--name\` or \`--name=false\`; the last of several wins, of a list all count. Durations take Go's notation (\`300ms\`, \`10s\`,
\`1m30s\`). Where a flag is absent its environment variables are read. A process accepts the flags of the others and says at \`-v=4\` that it has no use for them.
A bad flag or value ends a process with status 2 and one line that names it.
`;

/** The text of docs/flags.md. */
export function flagsDocument(): string {
  const sections = Object.entries(processes).map(([name, { summary, flags }]) =>
    renderMarkdown(name, `\`sutler ${name}\` ${summary}.`, flags),
  );
  return `${INTRODUCTION}\n${sections.join('\n')}`;
}
