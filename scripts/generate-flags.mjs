/* npm run generate:flags: writes docs/flags.md from the tables in src/<process>/flags.ts. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './setup.mjs';

const { flagsDocument } = await import(join(root, 'dist-dev', 'sandbox', 'flags-document.js'));
writeFileSync(join(root, 'docs', 'flags.md'), flagsDocument());
