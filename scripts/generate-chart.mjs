/* npm run generate:chart: writes what charts/sutler takes from k8s/. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, root } from './setup.mjs';

build();
const { chartFiles } = await import(join(root, 'dist-dev', 'test', 'harness', 'chart.js'));
for (const [path, text] of chartFiles()) writeFileSync(join(root, 'charts', 'sutler', path), text);
