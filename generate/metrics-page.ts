import { files } from './source-tree.ts';

/** The name and the help text of a metric, as every declaration has them beside each other:
 * `'sutler_x_total', 'Text.'` or `name: 'sutler_x_total', help: 'Text.'`. */
const DECLARATION =
  /(?:name: )?'([a-z]+(?:_[a-z0-9]+)+)',\s*(?:help:\s*)?((?:(?:'[^'\n]*'|"[^"\n]*")\s*\+?\s*)+)/g;

interface Metric {
  readonly name: string;
  readonly help: string;
  /** Folder of src/ that declares it. */
  readonly folder: string;
}

function declaredMetrics(): readonly Metric[] {
  const found = files
    .flatMap(({ folder, text }) =>
      /from 'prom-client'|metricsIn/.test(text)
        ? [...text.matchAll(DECLARATION)].map(([, name = '', help = '']) => ({
            name,
            help: help
              .replaceAll(/['"]\s*\+\s*['"]/g, '')
              .trim()
              .slice(1, -1),
            folder,
          }))
        : [],
    )
    .filter(({ help }) => /^[A-Z[\d]/.test(help));
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** The text of docs/metrics.md. */
export function metricsPage(): string {
  const items = declaredMetrics().map(
    ({ name, help, folder }) => `- \`${name}\` (\`src/${folder}/\`): ${help}`,
  );
  return [
    '# Metrics',
    '',
    'Every metric that sutler declares, with the folder that does. Names without the prefix',
    '`sutler_` are those of external-provisioner and csi-lib-utils. Each process also has those of',
    'Node (`nodejs_…`, `process_…`). A histogram has the suffixes `_bucket`, `_sum` and `_count`.',
    'This page is generated from the code: `npm run generate:metrics`.',
    '',
    ...items,
    '',
  ].join('\n');
}
