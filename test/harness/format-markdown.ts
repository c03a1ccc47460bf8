import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';

const ROOT = new URL('../../..', import.meta.url).pathname;

/** Wraps generated Markdown as `npm run format` would, so that generated pages and pages written by
 * hand look alike. */
export async function formatMarkdown(text: string): Promise<string> {
  const config = await resolveConfig(join(ROOT, 'docs/parity.md'));
  return format(text, { ...config, parser: 'markdown' });
}
