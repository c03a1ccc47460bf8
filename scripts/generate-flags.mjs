/* npm run generate:flags: writes docs/flags.md and docs/driver-config.schema.json from the flag
 * tables in src/<process>/flags.ts. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, root } from './setup.mjs';

build();

const harness = join(root, 'dist-dev', 'test', 'harness');
const { flagsPage } = await import(join(harness, 'flags-page.js'));
const { driverConfigSchema } = await import(join(harness, 'driver-config-schema.js'));
const { formatJson, formatMarkdown } = await import(join(harness, 'format-markdown.js'));
writeFileSync(join(root, 'docs', 'flags.md'), await formatMarkdown(flagsPage()));
writeFileSync(
  join(root, 'docs', 'driver-config.schema.json'),
  await formatJson(driverConfigSchema()),
);
