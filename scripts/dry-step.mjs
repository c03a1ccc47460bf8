/* What $DRY and $SLOW are in npm run release:check: prints a command of a workflow in place of
 * running it. Fails where a file that is ours, or that an earlier step has to have made, does not
 * exist. */
import { existsSync } from 'node:fs';
import { fail } from './setup.mjs';

const command = process.argv.slice(2);
process.stdout.write(`not run: ${command.join(' ')}\n`);
const files = command.filter((word) => /^(release|chart|\.ci)\//.test(word));
for (const file of files) if (!existsSync(file)) fail(`there is no ${file}`);
