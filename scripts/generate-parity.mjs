/* npm run generate:parity: writes docs/parity-cases.md from the test titles that contain the number
 * of a case. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, compiledTests, root } from './setup.mjs';

build();
const { findCases, readVerdicts, renderCases } = await import(
  join(compiledTests, 'harness', 'parity-cases.js')
);
const verdicts = readVerdicts(readFileSync(join(root, 'docs', 'parity.md'), 'utf8'));
const { formatMarkdown } = await import(join(compiledTests, 'harness', 'format-markdown.js'));
const page = await formatMarkdown(renderCases(findCases(root), verdicts));
writeFileSync(join(root, 'docs', 'parity-cases.md'), page);
