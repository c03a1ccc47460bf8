import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { createKubeClient } from '#src/kube/client.ts';
import { kubeFlags } from '#src/kube/flags.ts';
import { loadClusterAccess, openKubeClient } from '#src/kube/open-client.ts';
import { namespaces } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { createAuthority } from '../harness/kube-certificates.ts';
import { startKubeServer } from '../harness/kube-server.ts';

const directory = mkdtempSync(join(tmpdir(), 'sutler-open-client-'));
after(() => rmSync(directory, { recursive: true }));

/** Opens a client for a cluster with these fields, and returns what was logged. */
async function logOf(fields: object): Promise<string> {
  const path = join(directory, 'config');
  const config = {
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'lab', user: 'u' } }],
    clusters: [{ name: 'lab', cluster: { server: 'https://10.0.0.1:6443', ...fields } }],
    users: [{ name: 'u', user: { token: 't' } }],
  };
  writeFileSync(path, JSON.stringify(config));
  const parsed = parseFlags(kubeFlags, { argv: [`--kubeconfig=${path}`], env: {} });
  assert.ok(parsed.kind === 'run');
  let text = '';
  const write = (line: string): void => void (text += line);
  const log = createLogger({ name: 'test', verbosity: 0, format: 'json', write });
  const closers = new Closers();
  await openKubeClient('test', { flags: parsed.flags, env: {}, closers, log });
  await closers.close();
  return text;
}

describe('openKubeClient', () => {
  it('warns once, and only if the kubeconfig says insecure-skip-tls-verify', async () => {
    const lines = (await logOf({ 'insecure-skip-tls-verify': true })).trim().split('\n');
    const [warning, ...others] = lines.filter((line) => line.includes('insecure-skip-tls-verify'));
    assert.deepEqual(others, []);
    const { level, cluster, source } = JSON.parse(warning ?? '') as Record<string, unknown>;
    assert.deepEqual([level, cluster], ['warn', 'lab']);
    assert.match(String(source), /context "here"$/);
    assert.doesNotMatch(await logOf({ 'insecure-skip-tls-verify': false }), /insecure/);
  });
});

describe('a pod’s cluster by IPv6', () => {
  it('is reached at KUBERNETES_SERVICE_HOST=::1, whose certificate is checked', async () => {
    const authority = createAuthority(directory, 'ca');
    const server = await startKubeServer(
      (_, reply) => reply.json(200, { metadata: {} }),
      authority.server(),
      '::1',
    );
    writeFileSync(join(directory, 'token'), 'token-1');
    writeFileSync(join(directory, 'ca.crt'), authority.ca);
    const { port } = new URL(server.url);
    const env = { KUBERNETES_SERVICE_HOST: '::1', KUBERNETES_SERVICE_PORT: port };
    const access = await loadClusterAccess({ env, serviceAccountDir: directory });
    const client = createKubeClient({ access, userAgent: 'test', log: silentLog });
    assert.deepEqual(await client.get(namespaces, { name: 'default' }), { metadata: {} });
    assert.equal(server.seen[0]?.headers.host, `[::1]:${port}`);
    await client.close();
    await server.close();
  });
});
