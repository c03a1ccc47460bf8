import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { isFields } from '#src/runtime/json.ts';

/** What a process needs to reach an API server as in a pod: without a kubeconfig, which would have
 * it load client-node.
 * @param kubeconfig  path of a kubeconfig with a token
 * @param folder      where to write the files that Kubernetes mounts into a pod */
export async function inCluster(
  kubeconfig: string,
  folder: string,
): Promise<{ readonly env: Readonly<Record<string, string>>; readonly nodeOptions: string }> {
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
  const preload = new URL('service-account.js', import.meta.url).href;
  return {
    env: {
      SERVICE_ACCOUNT_DIR: folder,
      KUBERNETES_SERVICE_HOST: url.hostname,
      KUBERNETES_SERVICE_PORT: url.port,
    },
    nodeOptions: `--import=${preload}`,
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
