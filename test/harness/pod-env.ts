import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { isFields } from '#src/runtime/json.ts';

// Tests and benches run from dist-dev/test/harness.
const ROOT = new URL('../../../', import.meta.url);
const { imageVariables } = (await import(new URL('scripts/image-variables.mjs', ROOT).href)) as {
  readonly imageVariables: (text: string) => Readonly<Record<string, string>>;
};

/** The environment of a sutler as the image starts it in a pod.
 * @param o.kubeconfig   path of a kubeconfig with a token, for a service account; without it the
 *                       caller names a kubeconfig by flag, which has sutler load client-node
 * @param o.folder       where to write the files that Kubernetes mounts into a pod
 * @param o.nodeOptions  more options of Node */
export async function podEnv(o: {
  readonly kubeconfig?: string | undefined;
  readonly folder: string;
  readonly nodeOptions?: string;
}): Promise<Readonly<Record<string, string | undefined>>> {
  const dockerfile = await readFile(new URL('Dockerfile', ROOT), 'utf8');
  const [, memory = ''] = /^ENV (NODE_OPTIONS=(?:.*\\\n)*.*)$/m.exec(dockerfile) ?? [];
  const image = imageVariables(memory);
  const account = o.kubeconfig === undefined ? {} : await writeAccount(o.kubeconfig, o.folder);
  const preload = new URL('service-account.js', import.meta.url).href;
  const options = [
    image['NODE_OPTIONS'],
    o.nodeOptions,
    o.kubeconfig === undefined ? undefined : `--import=${preload}`,
  ];
  const NODE_OPTIONS = options.filter(Boolean).join(' ');
  return { PATH: process.env['PATH'], ...image, ...account, NODE_OPTIONS };
}

/** @returns the variables that a pod has for its account */
async function writeAccount(
  kubeconfig: string,
  folder: string,
): Promise<Readonly<Record<string, string>>> {
  const config: unknown = parse(await readFile(kubeconfig, 'utf8'));
  const url = new URL(textIn(config, 'server'));
  await mkdir(folder, { recursive: true });
  const data = textIn(config, 'certificate-authority-data');
  const ca =
    data === ''
      ? await readFile(textIn(config, 'certificate-authority'))
      : Buffer.from(data, 'base64');
  await writeFile(join(folder, 'ca.crt'), ca);
  await writeFile(join(folder, 'token'), textIn(config, 'token'));
  await writeFile(join(folder, 'namespace'), 'default');
  return {
    SERVICE_ACCOUNT_DIR: folder,
    KUBERNETES_SERVICE_HOST: url.hostname,
    KUBERNETES_SERVICE_PORT: url.port,
  };
}

/** The first text of this name anywhere in a document; '' for none. */
function textIn(value: unknown, name: string): string {
  if (Array.isArray(value)) return value.map((each) => textIn(each, name)).find(Boolean) ?? '';
  if (!isFields(value)) return '';
  const found = value[name];
  if (typeof found === 'string') return found;
  return (
    Object.values(value)
      .map((each) => textIn(each, name))
      .find(Boolean) ?? ''
  );
}
