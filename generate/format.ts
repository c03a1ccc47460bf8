import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';

const ROOT = new URL('../..', import.meta.url).pathname;

/** Wraps generated Markdown as `npm run format` would, so that generated pages and pages written by
 * hand look alike. */
export function formatMarkdown(text: string): Promise<string> {
  return formatAs('markdown', text);
}

/** The same for JSON. */
export function formatJson(value: object): Promise<string> {
  return formatAs('json', JSON.stringify(value));
}

async function formatAs(parser: string, text: string): Promise<string> {
  const config = await resolveConfig(join(ROOT, 'docs/parity.md'));
  return format(text, { ...config, parser });
}
