import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const PROGRAM = fileURLToPath(
  new URL('../../../k8s/overlays/quickstart/make-secrets.mjs', import.meta.url),
);

/** Runs the program of the Job of k8s/overlays/quickstart against an API server.
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
