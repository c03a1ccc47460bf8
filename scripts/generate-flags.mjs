/* npm run generate:flags: writes docs/flags.md and docs/driver-config.schema.json from the flag
 * tables in src/<process>/flags.ts. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, root } from './setup.mjs';

build();

const { flagsDocument } = await import(join(root, 'dist-dev', 'sandbox', 'flags-document.js'));
const { driverConfigSchema } = await import(
  join(root, 'dist-dev', 'sandbox', 'driver-config-schema.js')
);
const { formatJson, formatMarkdown } = await import(
  join(root, 'dist-dev', 'test', 'harness', 'format-markdown.js')
);
writeFileSync(join(root, 'docs', 'flags.md'), await formatMarkdown(flagsDocument()));
writeFileSync(
  join(root, 'docs', 'driver-config.schema.json'),
  await formatJson(driverConfigSchema()),
);
