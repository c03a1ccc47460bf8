/* What $DRY and $SLOW are in npm run release:check: prints a command of a workflow in place of
 * running it. Fails where it names an npm script, or a file of this folder, that does not exist. */
import { existsSync, readFileSync } from 'node:fs';
import { fail } from './setup.mjs';

const command = process.argv.slice(2);
process.stdout.write(`not run: ${command.join(' ')}\n`);
const at = command.indexOf('npm');
const script = command[at + 1] === 'run' ? command[at + 2] : undefined;
if (script !== undefined && !(script in JSON.parse(readFileSync('package.json', 'utf8')).scripts))
  fail(`package.json has no script ${script}`);
for (const word of command) {
  const [, folder] = /^([\w.-]+)\/[\w.*/-]+$/.exec(word) ?? [];
  if (folder !== undefined && existsSync(folder) && !existsSync(word)) fail(`there is no ${word}`);
}
