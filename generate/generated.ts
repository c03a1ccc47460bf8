import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { chartFiles } from './chart.ts';
import { driverConfigSchema } from './driver-config-schema.ts';
import { flagsPage } from './flags-page.ts';
import { formatJson, formatMarkdown } from './format.ts';
import { metricsPage } from './metrics-page.ts';
import { findCases, readVerdicts, renderCases } from './parity-cases.ts';
import { withFolderDrawing } from './source-tree.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** What each `npm run generate:…` writes, but for generate:csi: texts of files by their paths. */
export const GENERATED = {
  architecture: async () => [
    ['docs/architecture.md', withFolderDrawing(read('docs/architecture.md'))],
  ],
  chart: async () =>
    [...chartFiles()].map(([path, text]) => [join('charts/sutler', path), text] as const),
  flags: async () => [
    ['docs/flags.md', await formatMarkdown(flagsPage())],
    ['docs/driver-config.schema.json', await formatJson(driverConfigSchema())],
  ],
  metrics: async () => [['docs/metrics.md', await formatMarkdown(metricsPage())]],
  parity: async () => {
    const cases = renderCases(findCases(ROOT), readVerdicts(read('docs/parity.md')));
    return [['docs/parity-cases.md', await formatMarkdown(cases)]];
  },
} satisfies Record<string, () => Promise<readonly (readonly [string, string])[]>>;
