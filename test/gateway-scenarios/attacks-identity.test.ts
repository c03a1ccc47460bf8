import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { makeCertificates, tlsFilesOf } from '../harness/csi-certificates.ts';
import { dnsNameAsBytes, type Identity, signCertificate } from '../harness/forged-certificates.ts';
import { startTlsGateway, type TlsGateway } from '../harness/tls-gateway.ts';
import { until } from '../harness/until.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';

/* mutual-tls.test.ts has those that bring no certificate, TLS 1.2, plaintext, or a certificate of
 * another authority with the same name. */

/** Certificates of the authority whose names resemble `sutler-jobs`, the name that is allowed. */
const LOOKALIKES: Readonly<Record<string, Parameters<typeof signCertificate>[1]>> = {
  'the name as its common name only': { commonName: 'sutler-jobs' },
  'the name as its common name, and another alternative name': {
    commonName: 'sutler-jobs',
    subjectAltName: 'DNS:elsewhere',
  },
  'a wildcard for all names': { subjectAltName: 'DNS:*' },
  'a wildcard for a part of the name': { subjectAltName: 'DNS:sutler-*' },
  'a NUL after the name': { subjectAltName: dnsNameAsBytes('sutler-jobs\0') },
  'a NUL and more after the name': { subjectAltName: dnsNameAsBytes('sutler-jobs\0.elsewhere') },
  'a list of names inside one name': { subjectAltName: dnsNameAsBytes('x, DNS:sutler-jobs') },
  'a dot after the name': { subjectAltName: dnsNameAsBytes('sutler-jobs.') },
  'the name as an e-mail address': { subjectAltName: 'email:sutler-jobs' },
  'the name as a URI': { subjectAltName: 'URI:sutler-jobs' },
};

describe('the identity of a caller with TLS', () => {
  let test: TlsGateway;

  before(async () => {
    test = await startTlsGateway();
  });
  after(() => test.close());

  const connect = (options: ConnectionOptions): TLSSocket => {
    const { host, port } = test.tcp;
    const common = { host, port, ALPNProtocols: ['h2'], rejectUnauthorized: false };
    const socket = connectTls({ ...common, ...options });
    socket.on('error', () => undefined);
    return socket;
  };
  const identityOf = async (owner: 'jobs' | 'audit'): Promise<Identity> => {
    const { cert, key } = tlsFilesOf(test.folder.path, owner);
    return { cert: await readFile(cert, 'utf8'), key: await readFile(key, 'utf8') };
  };
  /** Makes a call on a new connection.
   * @returns how the gateway ended it, and how many calls reached the driver */
  const callWith = async (
    options: ConnectionOptions,
  ): Promise<{ by: string; forwarded: number; isResumed: boolean }> => {
    const earlier = test.driver.calls.length;
    const socket = connect(options);
    const session = connectHttp2('https://gateway', { createConnection: () => socket });
    session.on('error', () => undefined);
    const stream = session.request({
      ':method': 'POST',
      ':path': CREATE,
      'content-type': 'application/grpc',
    });
    let by = 'close';
    stream.on('response', () => (by = 'answer'));
    stream.on('error', () => undefined);
    stream.resume();
    stream.end(Buffer.alloc(5));
    await once(stream, 'close');
    const isResumed = !socket.destroyed && socket.isSessionReused();
    session.destroy();
    const created = test.driver.calls.slice(earlier).filter(({ path }) => path === CREATE);
    return { by, forwarded: created.length, isResumed };
  };

  it('is accepted with the allowed name', async () => {
    const result = await callWith(
      await signCertificate(test.folder.path, {
        subjectAltName: 'DNS:sutler-jobs',
      }),
    );
    assert.deepEqual([result.by, result.forwarded], ['answer', 1]);
  });

  for (const [what, contents] of Object.entries(LOOKALIKES))
    it(`is refused with ${what}`, async () => {
      const result = await callWith(await signCertificate(test.folder.path, contents));
      assert.deepEqual([result.by, result.forwarded], ['close', 0]);
    });

  it('is refused in the handshake with a certificate that another caller signed', async () => {
    const forged = { issuer: 'audit', subjectAltName: 'DNS:sutler-jobs' } as const;
    const result = await callWith(await signCertificate(test.folder.path, forged));
    assert.deepEqual([result.by, result.forwarded], ['close', 0]);
  });

  for (const version of ['TLSv1', 'TLSv1.1', 'TLSv1.2'] as const)
    it(`is not even asked for by ${version}`, async () => {
      const socket = connect({
        ...(await identityOf('jobs')),
        minVersion: version,
        maxVersion: version,
        // Without this, OpenSSL itself refuses to offer the old versions.
        ciphers: 'DEFAULT@SECLEVEL=0',
      });
      const accepted = once(socket, 'secureConnect').then(() => 'accepted');
      // Rejects with the same error as `refused` is resolved with.
      accepted.catch(() => undefined);
      const refused = new Promise((resolve) =>
        socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code)),
      );
      const result = await Promise.race([refused, accepted]);
      socket.destroy();
      assert.equal(result, 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
    });

  it('does not outlive its authority by a resumed session', async () => {
    const identity = await identityOf('jobs');
    const socket = connect(identity);
    const sessions: Buffer[] = [];
    socket.on('session', (session: Buffer) => sessions.push(session));
    socket.resume();
    await until(() => sessions.length > 0, 'the gateway gave a session');
    socket.destroy();
    const [session] = sessions;
    assert.ok(session);
    const earlier = await callWith({ ...identity, session });
    assert.deepEqual(earlier, { by: 'answer', forwarded: 1, isResumed: true });
    const authority = test.source.current.ca;
    await rm(test.folder.file('ca.key'));
    await makeCertificates(test.folder.path);
    await until(() => test.source.current.ca !== authority, 'the gateway has the new authority');
    const later = await callWith({ ...identity, session });
    assert.deepEqual(later, { by: 'close', forwarded: 0, isResumed: false });
  });
});
