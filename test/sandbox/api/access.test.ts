import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { silentLog } from '#src/runtime/log.ts';
import { type SandboxApi, startSandboxApi } from '../../../sandbox/api/server.ts';

describe('access to the sandbox API', () => {
  let api: SandboxApi;
  before(async () => {
    api = await startSandboxApi({ log: silentLog });
  });
  after(() => api.close());

  for (const path of ['/', '/wrong/', '/wrong-token-of-the-same-length--/'])
    it(`answers 401 without the token: ${path}`, async () => {
      const answer = await fetch(new URL(`${path}api/v1/namespaces`, api.url));
      assert.equal(answer.status, 401);
    });

  it('answers about its health without the token', async () => {
    assert.equal((await fetch(new URL('/readyz', api.url))).status, 200);
  });

  it('listens on loopback only', () => {
    assert.match(api.url, /^http:\/\/127\.0\.0\.1:\d+\/[\w-]{32}$/);
  });

  it('writes a kubeconfig that gives a client access', async () => {
    const config = JSON.parse(api.kubeconfig()) as {
      clusters: { cluster: { server: string } }[];
    };
    const answer = await fetch(`${config.clusters[0]?.cluster.server}/api/v1/namespaces/default`);
    assert.equal(answer.status, 200);
  });

  it('refuses a body above 3 MiB and continues to serve', async () => {
    const body = JSON.stringify({ data: { a: 'x'.repeat(4 * 1024 * 1024) } });
    const maps = `${api.url}/api/v1/namespaces/default/configmaps`;
    const answer = await fetch(maps, { method: 'POST', body }).catch(() => undefined);
    // The server closes the connection while the client sends, which may then see no answer.
    assert.equal(answer?.status ?? 413, 413);
    assert.equal((await fetch(maps)).status, 200);
  });
});
