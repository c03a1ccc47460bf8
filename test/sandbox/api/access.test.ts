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
});
