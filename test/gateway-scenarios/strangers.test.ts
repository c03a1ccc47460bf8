import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { CsiClient } from '#src/gateway-client/client.ts';
import type { Address } from '#src/runtime/address.ts';
import { clientTls, watchOwner } from '../harness/csi-certificates.ts';
import { failureOf, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { seeded } from '../harness/seeded.ts';
import { startTlsGateway, type TlsGateway } from '../harness/tls-gateway.ts';

const STRANGERS = 20;
const SETTINGS = { timeoutMs: 30_000 };
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

describe('a gateway among strangers', () => {
  let test: TlsGateway;
  const random = seeded(41);
  const noise = (): Buffer => Buffer.from(Array.from({ length: 2_000 }, () => random() * 256));

  before(async () => {
    test = await startTlsGateway();
  });
  after(() => test.close());

  const callersOf = async (): Promise<{ readonly client: CsiClient; close(): void }[]> => {
    const tls = await clientTls(test.folder.path, 'jobs');
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
    const before = test.driver.calls.length;
    const strangers = Array.from({ length: STRANGERS }, async () => {
      const tls = await clientTls(test.folder.path, 'audit');
      const client = new CsiClient({ address: test.tcp, tls });
      const error = await failureOf(client.createVolume(volumeRequest('stranger'), SETTINGS));
      client.close();
      tls.close();
      return verdict(error);
    });
    assert.ok(!(await Promise.all(strangers)).includes('driver'));
    const later = test.driver.calls.slice(before);
    assert.ok(!later.some(({ path }) => path.endsWith('/CreateVolume')));
    const [caller] = await callersOf();
    await caller?.client.createVolume(volumeRequest('honest'), SETTINGS);
    caller?.close();
  });

  it('ends a TLS connection that does not offer HTTP/2', async () => {
    const { host, port } = test.tcp;
    const tls = await watchOwner(test.folder.path, 'jobs');
    const { ca, cert, key } = tls.current;
    const socket = connectTls({ port, host, ca, cert, key });
    socket.on('error', () => undefined).resume();
    await once(socket, 'close');
    tls.close();
  });
});
