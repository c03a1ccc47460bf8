import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { after, before, describe, it } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import type { WatchedTlsFiles } from '#src/runtime/tls-files.ts';
import { parseAllowedNames } from '#src/runtime/certificate-names.ts';
import { type Address, formatAddress } from '#src/runtime/address.ts';
import { createLogger } from '#src/runtime/log.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import {
  type CertificateOwner,
  clientTls,
  makeCertificates,
  tlsFilesOf,
  watchOwner,
} from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const SETTINGS = { timeoutMs: 30_000 };

describe('the gateway with mutual TLS', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let source: WatchedTlsFiles;
  let test: Awaited<ReturnType<typeof startTestGateway>>;
  let blockCreate: (() => Promise<unknown>) | undefined;
  const lines: string[] = [];
  const ends: (() => void)[] = [];
  const validFolder = (): string => folder.file('good');

  before(async () => {
    folder = await makeFolder();
    await Promise.all([makeCertificates(validFolder()), makeCertificates(folder.file('foreign'))]);
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      onCall: ({ method }) =>
        method === 'CreateVolume' ? blockCreate?.().then(() => undefined) : undefined,
    });
    source = await watchOwner(validFolder(), 'gateway');
    test = await startTestGateway(folder, {
      listen: [
        { kind: 'tcp', host: '127.0.0.1', port: 0 },
        { kind: 'tcp', host: '::1', port: 0 },
        { kind: 'unix', path: folder.file('gw.sock') },
      ],
      tls: { source, allowedNames: parseAllowedNames(['DNS:sutler-ingest', 'sutler-jobs']) },
      logsMessages: true,
      log: createLogger({
        name: 'gateway',
        verbosity: 5,
        format: 'json',
        write: (line) => lines.push(line),
      }),
    });
    await until(() => test.gateway.trouble === undefined, 'ready');
  });
  after(async () => {
    for (const end of ends) end();
    await test.close();
    source.close();
    await driver.close();
    await folder.remove();
  });

  const addressOf = (index: number): Address => {
    const address = test.addresses[index];
    assert.ok(address);
    return address;
  };
  const clientOf = async (
    owner: CertificateOwner,
    options: { folder?: string; address?: Address; serverName?: string } = {},
  ): Promise<CsiClient> => {
    const tls = await clientTls(options.folder ?? validFolder(), owner, options.serverName);
    const client = new CsiClient({
      address: options.address ?? addressOf(0),
      tls,
    });
    ends.push(() => {
      client.close();
      tls.close();
    });
    return client;
  };
  for (const [index, name] of ['IPv4', 'IPv6', 'a unix socket'].entries()) {
    it(`accepts a caller with a listed name by ${name} and logs its name`, async () => {
      const client = await clientOf('jobs', { address: addressOf(index) });
      lines.length = 0;
      await client.createVolume(volumeRequest(`listener-${index}`), SETTINGS);
      const line = JSON.parse(lines.find((text) => text.includes('CreateVolume')) ?? '{}') as {
        caller: string;
      };
      assert.equal(
        line.caller,
        index === 2 ? 'unix' : 'DNS:sutler-jobs',
        formatAddress(addressOf(index)),
      );
    });
  }

  it('cuts off a caller whose name is not listed, and logs which name it has', async () => {
    const before = driver.counts.get('CreateVolume') ?? 0;
    lines.length = 0;
    const error = await failureOf(
      (await clientOf('audit')).createVolume(volumeRequest('n'), SETTINGS),
    );
    assert.notEqual(verdict(error), 'driver');
    assert.equal(driver.counts.get('CreateVolume') ?? 0, before);
    const why = '--tls-allowed-names lists no name of its certificate (DNS:sutler-audit)';
    assert.ok(
      lines.some((line) => line.includes(why)),
      lines.join(''),
    );
  });

  it('refuses a certificate of another authority', async () => {
    const tls = await clientTls(folder.file('foreign'), 'jobs');
    // This client trusts the gateway, so that the connection reaches the gateway's own check.
    const trusting = {
      current: { ...tls.source.current, ca: source.current.ca },
      onChange: () => () => undefined,
    };
    const client = new CsiClient({
      address: addressOf(0),
      tls: { source: trusting, serverName: '' },
    });
    const error = await failureOf(client.createVolume(volumeRequest('f'), { timeoutMs: 30_000 }));
    client.close();
    tls.close();
    // In TLS 1.3 the client completes the handshake before the server has checked its certificate,
    // so a call may be under way when the alert arrives.
    assert.notEqual(verdict(error), 'driver');
    const isLogged = (): boolean => lines.some((line) => line.includes('refused a caller'));
    await until(isLogged, 'it is logged');
  });

  it('uses a renewed certificate without ending a call or a connection', async () => {
    const client = await clientOf('ingest');
    let open: () => void = () => undefined;
    let isBlocked = false;
    const opened = new Promise<void>((resolve) => (open = resolve));
    blockCreate = () => {
      isBlocked = true;
      return opened;
    };
    const call = client.createVolume(volumeRequest('renew'), SETTINGS);
    await until(() => isBlocked, 'the call is at the driver');
    blockCreate = undefined;
    const before = source.current.cert;
    await makeCertificates(validFolder());
    await until(() => source.current.cert !== before, 'the gateway serves the new certificate');
    const fresh = await clientOf('ingest');
    await fresh.getCapacity({}, SETTINGS);
    await client.getCapacity({}, SETTINGS);
    open();
    assert.ok((await call).volume);
    const address = addressOf(0);
    assert.ok(address.kind === 'tcp');
    const files = tlsFilesOf(validFolder(), 'jobs');
    const socket = connectTls({
      host: address.host,
      port: address.port,
      ca: source.current.ca,
      cert: await readFile(files.cert),
      key: await readFile(files.key),
      ALPNProtocols: ['h2'],
    });
    await once(socket, 'secureConnect');
    assert.equal(socket.getPeerX509Certificate()?.toString().trim(), source.current.cert.trim());
    assert.equal(socket.getProtocol(), 'TLSv1.3');
    socket.destroy();
  });

  it('refuses calls of a connection whose authority is no longer trusted', async () => {
    const client = await clientOf('jobs');
    const watched = await watchOwner(validFolder(), 'ingest');
    const frozen = new CsiClient({
      address: addressOf(0),
      tls: {
        source: { current: watched.current, onChange: () => () => undefined },
        serverName: '',
      },
    });
    watched.close();
    ends.push(() => frozen.close());
    await Promise.all([client.getCapacity({}, SETTINGS), frozen.getCapacity({}, SETTINGS)]);
    const before = source.current.ca;
    await rm(folder.file('good/ca.key'));
    await makeCertificates(validFolder());
    await until(() => source.current.ca !== before, 'the new authority is in use');
    const error = await failureOf(frozen.getCapacity({}, SETTINGS));
    assert.equal(error.code, Code.Unavailable);
    assert.equal(verdict(error), 'not-forwarded');
    await until(
      () =>
        client.getCapacity({}, { timeoutMs: 30_000 }).then(
          () => true,
          () => false,
        ),
      'a caller with a new certificate calls',
    );
  });

  it('does not forward a request that began before its authority lost its trust', async () => {
    const files = tlsFilesOf(validFolder(), 'jobs');
    const address = addressOf(0);
    assert.ok(address.kind === 'tcp');
    const session = connectHttp2(`https://127.0.0.1:${address.port}`, {
      ca: await readFile(files.ca),
      cert: await readFile(files.cert),
      key: await readFile(files.key),
    });
    ends.push(() => session.destroy());
    const stream = session.request({
      ':method': 'POST',
      ':path': '/csi.v1.Controller/GetCapacity',
      'content-type': 'application/grpc',
    });
    stream.write(Buffer.alloc(1));
    // Its answer shows that the gateway has read what was sent before.
    await new Promise((resolve) => session.ping(resolve));
    const before = { ca: source.current.ca, calls: driver.counts.get('GetCapacity') };
    await rm(folder.file('good/ca.key'));
    await makeCertificates(validFolder());
    await until(() => source.current.ca !== before.ca, 'the new authority is in use');
    stream.end(Buffer.alloc(4));
    const [headers] = (await once(stream, 'response')) as [Record<string, string>];
    assert.equal(headers['grpc-status'], String(Code.Unavailable));
    assert.equal(headers['sutler-not-forwarded'], '1');
    assert.equal(driver.counts.get('GetCapacity'), before.calls);
  });
});
