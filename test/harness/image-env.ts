import { readFile } from 'node:fs/promises';

// Tests and benches run from dist-dev/test/harness.
const DOCKERFILE = new URL('../../../Dockerfile', import.meta.url);

/** The variables by which the image limits memory. A version of Node that does not know all of them
 * gets those that it knows. */
export async function imageEnv(): Promise<Readonly<Record<string, string>>> {
  const text = await readFile(DOCKERFILE, 'utf8');
  const [, lines = ''] = /^ENV (NODE_OPTIONS=(?:.*\\\n)*.*)$/m.exec(text) ?? [];
  const variables = [...lines.matchAll(/(\w+)=(?:"([^"]*)"|(\S+))/g)].map(
    ([, name = '', quoted, plain = '']) => [name, quoted ?? plain] as const,
  );
  const env = Object.fromEntries(variables);
  const options = (env['NODE_OPTIONS'] ?? '').split(' ');
  const known = options.filter((option) =>
    process.allowedNodeEnvironmentFlags.has(option.replace(/=.*/, '')),
  );
  return { ...env, NODE_OPTIONS: known.join(' ') };
}
