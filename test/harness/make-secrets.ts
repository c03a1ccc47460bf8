import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type KubeServer, startKubeServer } from './kube-server.ts';

const run = promisify(execFile);
const PROGRAM = fileURLToPath(
  new URL('../../../k8s/make-secrets/make-secrets.mjs', import.meta.url),
);

/** Runs the program of the Job of k8s/make-secrets against an API server.
 * @returns the lines that it prints
 * @throws Error with what it prints, if it fails */
export async function makeSecrets(api: {
  readonly url: string;
  readonly token: string;
  readonly ca?: string | undefined;
}): Promise<readonly string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'sutler-secrets-'));
  try {
    const files = { TOKEN_FILE: join(folder, 'token'), NODE_EXTRA_CA_CERTS: join(folder, 'ca') };
    await writeFile(files.TOKEN_FILE, api.token);
    await writeFile(files.NODE_EXTRA_CA_CERTS, api.ca ?? '');
    const env = { ...process.env, ...files, API: api.url, NAMESPACE: 'sutler' };
    const { stdout } = await run(process.execPath, [PROGRAM], { env });
    return stdout.trim().split('\n');
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** An API server that has Secrets alone. */
export interface SecretServer {
  /** What it holds, by name. */
  readonly secrets: Map<string, Readonly<Record<string, string>>>;
  readonly server: KubeServer;
}

export async function startSecretServer(): Promise<SecretServer> {
  const secrets: SecretServer['secrets'] = new Map();
  const server = await startKubeServer(({ method, path, body }, reply) => {
    const [, collection, name = ''] = /^(.*\/secrets)(?:\/(.*))?$/.exec(path) ?? [];
    if (collection !== '/api/v1/namespaces/sutler/secrets')
      return reply.status(404, 'NotFound', path);
    if (method === 'GET') {
      const encoded = Object.entries(secrets.get(name) ?? {}).map(([key, text]) => [
        key,
        Buffer.from(text).toString('base64'),
      ]);
      return reply.json(200, { data: Object.fromEntries(encoded) });
    }
    const { metadata, stringData } = JSON.parse(body) as {
      readonly metadata: { readonly name: string };
      readonly stringData: Readonly<Record<string, string>>;
    };
    if (secrets.has(metadata.name)) return reply.status(409, 'AlreadyExists', 'is there');
    secrets.set(metadata.name, stringData);
    reply.json(201, {});
  });
  return { secrets, server };
}
