/* npm run generate:flags, generate:metrics and so on: writes files that are made of others. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, root } from './setup.mjs';

build();
const { GENERATED } = await import(join(root, 'dist-dev', 'generate', 'generated.js'));
for (const name of process.argv.slice(2))
  for (const [path, text] of await GENERATED[name]()) writeFileSync(join(root, path), text);
