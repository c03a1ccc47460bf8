import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { after, before, describe, it } from 'node:test';
import { makeCertificate } from '../../../sandbox/api/http/certificate.ts';
import { textAt, type Json } from '../../../sandbox/api/json-value.ts';
import { openSandboxHttp, type SandboxHttp } from '../../harness/sandbox-http.ts';

describe('access to the sandbox API', () => {
  let http: SandboxHttp;
  before(async () => {
    http = await openSandboxHttp();
  });
  after(() => http.close());

  for (const authorization of ['', 'Bearer wrong', 'Basic YTpi']) {
    it(`answers 401 to ${JSON.stringify(authorization)}`, async () => {
      const { code, body } = await http.call('GET', '/api/v1/namespaces', {
        headers: { authorization },
      });
      assert.equal(code, 401);
      assert.equal(textAt(body, 'reason'), 'Unauthorized');
    });
  }

  it('answers health and version without a token', async () => {
    for (const path of ['/healthz', '/readyz', '/livez', '/version']) {
      assert.equal(
        (await http.call('GET', path, { headers: { authorization: '' } })).code,
        200,
        path,
      );
    }
  });

  for (const host of ['evil.example', '127.0.0.1', 'localhost.evil.example:443']) {
    it(`refuses the host ${host}, with and without a token`, async () => {
      const { code, body } = await http.call('GET', '/api/v1/namespaces', { headers: { host } });
      assert.equal(code, 403);
      assert.match(textAt(body, 'message'), /loopback only/);
    });
  }

  it('listens on loopback only, with its own certificate', async () => {
    assert.match(http.api.url, /^https:\/\/127\.0\.0\.1:\d+$/);
    const stranger = request(`${http.api.url}/healthz`);
    const failed = once(stranger, 'response');
    stranger.end();
    await assert.rejects(failed, { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
  });

  it('writes a kubeconfig that gives a client access', async () => {
    const config = JSON.parse(http.api.kubeconfig()) as {
      clusters: { cluster: Record<string, string> }[];
      users: { user: { token: string } }[];
    };
    const cluster = config.clusters[0]?.cluster ?? {};
    const ca = Buffer.from(cluster['certificate-authority-data'] ?? '', 'base64');
    const sent = request(`${cluster['server'] ?? ''}/api/v1/namespaces/default`, {
      ca,
      headers: { authorization: `Bearer ${config.users[0]?.user.token ?? ''}` },
    });
    sent.end();
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.resume();
    assert.equal(response.statusCode, 200);
  });

  it('refuses a body above 3 MiB with 413 and continues to serve', async () => {
    const body: Json = { metadata: { name: 'big' }, data: { a: 'x'.repeat(4 * 1024 * 1024) } };
    const answer = await http
      .call('POST', '/api/v1/namespaces/default/configmaps', { body })
      .catch((error: unknown) => error);
    // The server closes the connection while the client sends: the client sees 413 or EPIPE.
    if (!(answer instanceof Error)) assert.equal((answer as { code: number }).code, 413);
    assert.equal((await http.call('GET', '/api/v1/namespaces/default')).code, 200);
  });
});

describe('makeCertificate', () => {
  it('creates a self-signed certificate for loopback, valid for a month', () => {
    const now = Date.parse('2026-11-21T00:00:00Z');
    const certificate = new X509Certificate(makeCertificate(now).cert);
    assert.ok(certificate.verify(certificate.publicKey));
    assert.ok(certificate.ca);
    assert.equal(certificate.checkIP('127.0.0.1'), '127.0.0.1');
    assert.equal(certificate.checkHost('localhost'), 'localhost');
    assert.equal(certificate.checkHost('example.com'), undefined);
    assert.equal(Date.parse(certificate.validTo) - now, 30 * 24 * 60 * 60 * 1000);
  });
});
