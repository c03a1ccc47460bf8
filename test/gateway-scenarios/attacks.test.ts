import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { CsiClient } from '#src/gateway-client/client.ts';
import type { Address } from '#src/runtime/address.ts';
import { clientTls, makeCertificates, tlsFilesOf } from '../harness/csi-certificates.ts';
import { volumeRequest } from '../harness/csi-gateway.ts';
import { dnsNameAsBytes, type Identity, signCertificate } from '../harness/forged-certificates.ts';
import { startTlsGateway, type TlsGateway } from '../harness/tls-gateway.ts';
import { until } from '../harness/until.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/* mutual-tls.test.ts has the callers with a certificate of another authority. */

/** Certificates of the authority whose names resemble `sutler-jobs`, the name that is allowed. */
const LOOKALIKES: Readonly<Record<string, Parameters<typeof signCertificate>[1]>> = {
  'the name as its common name, and another alternative name': {
    commonName: 'sutler-jobs',
    subjectAltName: 'DNS:elsewhere',
  },
  'a wildcard for a part of the name': { subjectAltName: 'DNS:sutler-*' },
  'a NUL and more after the name': { subjectAltName: dnsNameAsBytes('sutler-jobs\0.elsewhere') },
  'a list of names inside one name': { subjectAltName: dnsNameAsBytes('x, DNS:sutler-jobs') },
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
    await new Promise((resolve) => stream.once('close', resolve));
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

  it('is refused without a certificate', async () => {
    const result = await callWith({});
    assert.deepEqual([result.by, result.forwarded], ['close', 0]);
  });

  it('is refused in the handshake with a certificate that another caller signed', async () => {
    const forged = { issuer: 'audit', subjectAltName: 'DNS:sutler-jobs' } as const;
    const result = await callWith(await signCertificate(test.folder.path, forged));
    assert.deepEqual([result.by, result.forwarded], ['close', 0]);
  });

  it('is refused with TLS 1.2', async () => {
    const socket = connect({ ...(await identityOf('jobs')), maxVersion: 'TLSv1.2' });
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    socket.destroy();
    assert.equal(error.code, 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
  });

  it('cannot use a resumed session once its authority is replaced', async () => {
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

describe('a gateway among strangers', () => {
  let test: TlsGateway;
  before(async () => {
    test = await startTlsGateway();
  });
  after(() => test.close());

  it('serves its callers while others send random bytes, plaintext or nothing', async () => {
    const connect = (address: Address): Socket => {
      const socket =
        address.kind === 'unix' ? connectSocket(address.path) : connectSocket(address.port);
      return socket.on('error', () => undefined).resume();
    };
    const silent = test.addresses.map(connect);
    for (let i = 0; i < 20; i += 1)
      for (const address of test.addresses)
        connect(address).end(
          Buffer.concat([i % 2 === 0 ? PREFACE : Buffer.alloc(0), randomBytes(2_000)]),
        );
    const tls = await clientTls(test.folder.path, 'jobs');
    for (const address of test.addresses) {
      const client = new CsiClient({ address, tls });
      await client.createVolume(volumeRequest('beside'), { timeoutMs: 30_000 });
      client.close();
    }
    tls.close();
    for (const socket of silent) socket.destroy();
  });
});
