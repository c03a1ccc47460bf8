import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { CsiClient } from '#src/gateway-client/client.ts';
import type { Address } from '#src/runtime/address.ts';
import { parseAllowedNames } from '#src/runtime/certificate-names.ts';
import type { WatchedTlsFiles } from '#src/runtime/tls-files.ts';
import {
  clientTls,
  makeCertificates,
  tlsFilesOf,
  watchOwner,
} from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestGateway, volumeRequest } from '../harness/csi-gateway.ts';
import {
  answerOk,
  CREATED_VOLUME,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { until } from '../harness/until.ts';

const CREATE = '/csi.v1.Controller/CreateVolume';
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** A certificate with its key, as PEM texts. */
interface Identity {
  /** Followed by its issuer's certificate, if that is no authority. */
  readonly cert: string;
  readonly key: string;
}

const run = promisify(execFile);
const CURVE = 'ec_paramgen_curve:prime256v1';
const NEW_KEY = ['req', '-new', '-newkey', 'ec', '-pkeyopt', CURVE, '-nodes'];

/** Signs a client certificate as `k8s/gateway/certificates.sh` does, but with any contents.
 * @param folder  with the files of that script
 * @param options.issuer          whose key signs it: the authority, or one of its leaves
 * @param options.commonName      default: forged
 * @param options.subjectAltName  in the notation of openssl; absent: the extension is left out */
async function signCertificate(
  folder: string,
  options: {
    readonly issuer?: 'ca' | 'audit';
    readonly commonName?: string;
    readonly subjectAltName?: string;
  },
): Promise<Identity> {
  const { issuer = 'ca', commonName = 'forged', subjectAltName } = options;
  const file = (name: string): string => join(folder, name);
  const extensions = [
    ...(subjectAltName === undefined ? [] : [`subjectAltName=${subjectAltName}`]),
    'extendedKeyUsage=clientAuth',
    'basicConstraints=critical,CA:FALSE',
  ];
  await writeFile(file('forged.ext'), extensions.join('\n'));
  const request = ['-keyout', file('forged.key'), '-out', file('forged.csr')];
  await run('openssl', [...NEW_KEY, ...request, '-subj', `/CN=${commonName}`]);
  const signer = ['-CA', file(`${issuer}.crt`), '-CAkey', file(`${issuer}.key`)];
  const files = ['-in', file('forged.csr'), '-out', file('forged.crt')];
  const contents = ['-set_serial', String(Date.now()), '-extfile', file('forged.ext')];
  await run('openssl', ['x509', '-req', '-days', '2', ...signer, ...files, ...contents]);
  const cert = await readFile(file('forged.crt'), 'utf8');
  const chain = issuer === 'ca' ? '' : await readFile(file(`${issuer}.crt`), 'utf8');
  return { cert: cert + chain, key: await readFile(file('forged.key'), 'utf8') };
}

/** A subjectAltName with one DNS name, as bytes: openssl's own notation has no NUL. */
function dnsNameAsBytes(name: string): string {
  const text = Buffer.from(name, 'latin1');
  const entry = Buffer.concat([Buffer.from([0x82, text.length]), text]);
  const sequence = Buffer.concat([Buffer.from([0x30, entry.length]), entry]);
  return `DER:${sequence.toString('hex').replace(/..(?!$)/g, '$&:')}`;
}

/** Certificates whose names resemble `sutler-jobs`, the name that is allowed, or that the authority
 * did not sign. */
const REFUSED: Readonly<Record<string, Parameters<typeof signCertificate>[1] | undefined>> = {
  'no certificate': undefined,
  'the name, signed by another caller': { issuer: 'audit', subjectAltName: 'DNS:sutler-jobs' },
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
    const contents = { subjectAltName: 'DNS:sutler-jobs' };
    const result = await callWith(await signCertificate(test.folder.path, contents));
    assert.deepEqual([result.by, result.forwarded], ['answer', 1]);
  });

  for (const [what, contents] of Object.entries(REFUSED))
    it(`is refused with ${what}`, async () => {
      const options = contents && (await signCertificate(test.folder.path, contents));
      const result = await callWith(options ?? {});
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

interface TlsGateway {
  /** With the certificates of all callers. */
  readonly folder: Awaited<ReturnType<typeof makeFolder>>;
  readonly driver: RawDriver;
  /** The gateway's own certificates. */
  readonly source: WatchedTlsFiles;
  /** Where it listens. */
  readonly addresses: readonly Address[];
  /** Where it listens on TCP. */
  readonly tcp: Extract<Address, { kind: 'tcp' }>;
  close(): Promise<void>;
}

/** Starts a gateway that sutler-jobs alone may call on TCP, and anybody at `gw.sock` of its folder,
 * before a driver that creates volumes. Resolves when it is ready. */
async function startTlsGateway(): Promise<TlsGateway> {
  const folder = await makeFolder();
  await makeCertificates(folder.path);
  const driver = await startRawDriver(
    folder.file('csi.sock'),
    (call) => call.path.endsWith('/CreateVolume') && answerOk(call, CREATED_VOLUME),
  );
  const source = await watchOwner(folder.path, 'gateway');
  const { address, addresses, gateway, close } = await startTestGateway(folder, {
    listen: [
      { kind: 'tcp', host: '127.0.0.1', port: 0 },
      { kind: 'unix', path: folder.file('gw.sock') },
    ],
    tls: { source, allowedNames: parseAllowedNames(['sutler-jobs']) },
  });
  if (address.kind !== 'tcp') throw new Error('it does not listen on TCP');
  await until(() => gateway.trouble === undefined, 'ready');
  return {
    folder,
    driver,
    source,
    addresses,
    tcp: address,
    close: async () => {
      await close();
      source.close();
      await driver.close();
      await folder.remove();
    },
  };
}
