/* npm run generate:architecture: draws the folders of src/ and their imports into
 * docs/architecture.md. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, root } from './setup.mjs';

build();
const page = join(root, 'docs', 'architecture.md');
const { withFolderDrawing } = await import(
  join(root, 'dist-dev', 'test', 'harness', 'source-tree.js')
);
writeFileSync(page, withFolderDrawing(readFileSync(page, 'utf8')));
