import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { type KubeServer, startKubeServer } from '../harness/kube-server.ts';
import { makeSecrets } from '../harness/make-secrets.ts';

interface Secret {
  readonly metadata: { readonly name: string };
  readonly stringData: Readonly<Record<string, string>>;
}

describe('the Job that makes the Secrets', () => {
  const secrets = new Map<string, Secret>();
  let server: KubeServer;
  let isForbidden = false;
  const run = () => makeSecrets({ url: server.url, token: 'a-token' });
  const valueOf = (secret: string, key: string): string =>
    secrets.get(secret)?.stringData[key] ?? '';
  const certificateOf = (secret: string): X509Certificate =>
    new X509Certificate(valueOf(secret, 'tls.crt'));
  before(async () => {
    server = await startKubeServer(({ method, path, body }, reply) => {
      if (isForbidden) return reply.status(403, 'Forbidden', 'secrets is forbidden');
      assert.ok(path.startsWith('/api/v1/namespaces/sutler/secrets'));
      if (method === 'GET') {
        const { stringData = {} } = secrets.get(path.split('/').at(-1) ?? '') ?? {};
        const encode = (text: string): string => Buffer.from(text).toString('base64');
        const pairs = Object.entries(stringData).map(([key, text]) => [key, encode(text)]);
        return reply.json(200, { data: Object.fromEntries(pairs) });
      }
      const secret = JSON.parse(body) as Secret;
      if (secrets.has(secret.metadata.name)) return reply.status(409, 'AlreadyExists', 'is there');
      secrets.set(secret.metadata.name, secret);
      reply.json(201, secret);
    });
    await run();
  });
  after(() => server.close());

  it('makes each that a manifest of the overlay mounts', () =>
    assert.deepEqual([...secrets.keys()].toSorted(), [
      'sutler-dashboard',
      'sutler-gateway-authority',
      'sutler-gateway-tls',
      'sutler-ingest-tls',
      'sutler-jobs-tls',
      'sutler-record-key',
      'sutler-redis',
    ]));

  it('makes that of Redis last, without which no process starts', () =>
    assert.equal([...secrets.keys()].at(-1), 'sutler-redis'));

  it('writes each user’s password of Redis into its URL', () => {
    for (const name of ['ingest', 'jobs', 'dashboard', 'operator']) {
      const url = new URL(valueOf('sutler-redis', `${name}-url`));
      assert.equal(url.username, `sutler-${name}`);
      assert.equal(url.password, valueOf('sutler-redis', `${name}-password`));
      assert.equal(url.host, 'sutler-redis.sutler.svc:6379');
    }
  });

  it('makes certificates that its authority has signed, with the names that each expects', () => {
    const authority = certificateOf('sutler-gateway-authority');
    for (const [name, expected] of [
      ['gateway', 'sutler-gateway.sutler.svc'],
      ['ingest', 'sutler-ingest'],
      ['jobs', 'sutler-jobs'],
    ] as const) {
      const certificate = certificateOf(`sutler-${name}-tls`);
      assert.ok(certificate.verify(authority.publicKey), name);
      assert.equal(certificate.checkHost(expected), expected);
      assert.equal(valueOf(`sutler-${name}-tls`, 'ca.crt').trim(), authority.toString().trim());
    }
  });

  it('changes none that exists', async () => {
    const before = new Map(secrets);
    await run();
    assert.deepEqual(secrets, before);
  });

  it('makes one that was deleted again, by the same authority', async () => {
    const authority = certificateOf('sutler-gateway-authority');
    secrets.delete('sutler-jobs-tls');
    await run();
    assert.ok(certificateOf('sutler-jobs-tls').verify(authority.publicKey));
  });

  it('fails with what the API server says', async () => {
    isForbidden = true;
    await assert.rejects(
      run(),
      /POST Secret sutler\/sutler-record-key: 403 .*secrets is forbidden/,
    );
  });
});
