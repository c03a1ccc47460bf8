/* npm run generate:metrics: writes docs/metrics.md from the declarations of metrics in src/. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, root } from './setup.mjs';

build();
const { metricsPage } = await import(join(root, 'dist-dev', 'test', 'harness', 'metrics-page.js'));
writeFileSync(join(root, 'docs', 'metrics.md'), await metricsPage());
