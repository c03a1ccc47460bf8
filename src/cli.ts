#!/usr/bin/env node
import { allFlags, processes } from './processes.ts';
import { idleFlags, retiredFlags } from './runtime/retired-flags.ts';
import { version } from './runtime/version.ts';

const [name = '--help', ...argv] = process.argv.slice(2);
const chosen = Object.hasOwn(processes, name) ? processes[name] : undefined;
if (chosen !== undefined) {
  const { main } = await chosen.load();
  await main({ host: process, argv, known: allFlags, idle: idleFlags, retired: retiredFlags });
} else if (name === '--version') {
  process.stdout.write(`sutler ${version}\n`);
} else if (name === '--help' || name === '-h' || name === 'help') {
  const rows = Object.entries(processes).map(([word, { summary }]) => `  ${word.padEnd(16)}${summary}`);
  process.stdout.write(['Usage: sutler PROCESS [flags]    (sutler PROCESS --help lists its flags)', '', ...rows, ''].join('\n'));
} else {
  process.stderr.write(`sutler: there is no process "${name}"; choose ${Object.keys(processes).join(', ')}\n`);
  process.exitCode = 2;
}
