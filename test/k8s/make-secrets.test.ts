import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { makeSecrets, type SecretServer, startSecretServer } from '../harness/make-secrets.ts';

describe('the Job that makes the Secrets', () => {
  let secrets: SecretServer['secrets'];
  let server: SecretServer['server'];
  const run = () => makeSecrets({ url: server.url, token: 'a-token' });
  const valueOf = (secret: string, key: string): string => secrets.get(secret)?.[key] ?? '';
  const certificateOf = (secret: string): X509Certificate =>
    new X509Certificate(valueOf(secret, 'tls.crt'));
  before(async () => {
    ({ secrets, server } = await startSecretServer());
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
      'sutler-redis',
    ]));

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
    server.handler = (_, reply) => reply.status(403, 'Forbidden', 'secrets is forbidden');
    await assert.rejects(run(), /POST Secret sutler\/sutler-dashboard: 403 .*secrets is forbidden/);
  });
});
