import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { CsiClient } from '#src/gateway-client/client.ts';
import type { Address } from '#src/runtime/address.ts';
import { parseAllowedNames } from '#src/runtime/certificate-names.ts';
import type { WatchedTlsFiles } from '#src/runtime/tls-files.ts';
import { clientTls, makeCertificates, watchOwner } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import {
  answerOk,
  CREATED_VOLUME,
  type RawDriver,
  startRawDriver,
} from '../harness/csi-raw-driver.ts';
import { seeded } from '../harness/seeded.ts';
import { until } from '../harness/until.ts';

const STRANGERS = 20;
const SETTINGS = { timeoutMs: 30_000 };
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

describe('a gateway among strangers', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: RawDriver;
  let source: WatchedTlsFiles;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  const random = seeded(41);
  const noise = (): Buffer => Buffer.from(Array.from({ length: 2_000 }, () => random() * 256));

  before(async () => {
    folder = await makeFolder();
    await makeCertificates(folder.path);
    driver = await startRawDriver(
      folder.file('csi.sock'),
      (call) => call.path.endsWith('/CreateVolume') && answerOk(call, CREATED_VOLUME),
    );
    source = await watchOwner(folder.path, 'gateway');
    test = await startTestGateway(folder, {
      listen: [
        { kind: 'tcp', host: '127.0.0.1', port: 0 },
        { kind: 'unix', path: folder.file('gw.sock') },
      ],
      tls: { source, allowedNames: parseAllowedNames(['sutler-jobs']) },
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  after(async () => {
    await test.close();
    source.close();
    await driver.close();
    await folder.remove();
  });

  const callersOf = async (): Promise<{ readonly client: CsiClient; close(): void }[]> => {
    const tls = await clientTls(folder.path, 'jobs');
    return test.addresses.map((address) => {
      const client = new CsiClient({ address, tls });
      return { client, close: () => (client.close(), tls.close()) };
    });
  };
  const connect = (address: Address): Socket => {
    const socket =
      address.kind === 'unix' ? connectSocket(address.path) : connectSocket(address.port);
    return socket.on('error', () => undefined).resume();
  };

  it('serves its callers while others send random bytes or nothing', async () => {
    const silent = test.addresses.map(connect);
    for (let i = 0; i < STRANGERS; i += 1)
      for (const address of test.addresses)
        connect(address).end(Buffer.concat([i % 2 === 0 ? PREFACE : Buffer.alloc(0), noise()]));
    for (const { client, close } of await callersOf()) {
      await client.createVolume(volumeRequest('beside'), SETTINGS);
      close();
    }
    for (const socket of silent) socket.destroy();
  });

  it('gives a caller with another name no call, and serves the others', async () => {
    const [address] = test.addresses;
    assert.ok(address?.kind === 'tcp');
    const before = driver.calls.length;
    const strangers = Array.from({ length: STRANGERS }, async () => {
      const tls = await clientTls(folder.path, 'audit');
      const client = new CsiClient({ address, tls });
      const error = await failureOf(client.createVolume(volumeRequest('stranger'), SETTINGS));
      client.close();
      tls.close();
      return verdict(error);
    });
    assert.ok(!(await Promise.all(strangers)).includes('driver'));
    const created = driver.calls.slice(before).filter(({ path }) => path.endsWith('/CreateVolume'));
    assert.equal(created.length, 0);
    const [caller] = await callersOf();
    await caller?.client.createVolume(volumeRequest('honest'), SETTINGS);
    caller?.close();
  });

  it('ends a TLS connection that does not offer HTTP/2', async () => {
    const [address] = test.addresses;
    assert.ok(address?.kind === 'tcp');
    const tls = await watchOwner(folder.path, 'jobs');
    const { ca, cert, key } = tls.current;
    const socket = connectTls({ port: address.port, host: address.host, ca, cert, key });
    socket.on('error', () => undefined).resume();
    await once(socket, 'close');
    tls.close();
  });
});
