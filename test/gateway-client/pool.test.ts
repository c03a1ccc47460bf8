import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { podAddress } from '#src/gateway-client/gateway-address.ts';
import {
  type GatewayPool,
  openGatewayPool,
  openServiceGatewayPool,
} from '#src/gateway-client/pool.ts';
import type { Address } from '#src/runtime/address.ts';
import { parseAllowedNames } from '#src/runtime/certificate-names.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { fixedEndpoints } from '../harness/fixed-endpoints.ts';
import { makeCertificates, watchOwner } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

describe('openGatewayPool', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let drivers: SampleDriver[];
  let pool: GatewayPool;
  const address = (name: string): string => `unix://${folder.file(name)}`;

  before(async () => {
    folder = await makeFolder();
    drivers = [];
    for (const name of ['a', 'b'])
      drivers.push(
        await startSampleDriver({
          socket: folder.file(name),
          dataDir: folder.file(`${name}-data`),
        }),
      );
    // A path and its URL name the same gateway.
    pool = openGatewayPool({
      addresses: [folder.file('a'), address('a'), address('b')],
      log: silentLog,
    });
  });
  after(async () => {
    pool.close();
    for (const driver of drivers) await driver.close();
    await folder.remove();
  });

  it('lists each address once, in the notation of Redis', () => {
    assert.deepEqual(
      pool.gateways.map((gateway) => gateway.address),
      [address('a'), address('b')],
    );
    assert.equal(pool.soleAddress, '');
  });

  it('sends a call to the named gateway and prefers that one afterwards', async () => {
    await pool.calls.createVolume(volumeRequest('one'), {
      timeoutMs: 30_000,
      gateway: address('b'),
    });
    assert.deepEqual(
      drivers.map(({ counts }) => counts.get('CreateVolume') ?? 0),
      [0, 1],
    );
    assert.equal(pool.inOrder()[0]?.address, address('b'));
    assert.equal((await pool.anyReplica.listVolumes({}, { timeoutMs: 30_000 })).entries.length, 1);
  });

  it('refuses an unknown gateway, not forwarded, and names the flag', async () => {
    const error = await failureOf(
      pool.calls.deleteVolume({ volumeId: 'x' }, { timeoutMs: 30_000, gateway: 'unix:///other' }),
    );
    assert.equal(error.notForwarded, true);
    assert.match(
      error.message,
      /unix:\/\/\/other is not among the gateways of this process: see its --gateway,/,
    );
  });

  it('refuses a call without a named gateway if there are several', async () => {
    const error = await failureOf(
      pool.calls.deleteVolume({ volumeId: 'x' }, { timeoutMs: 30_000, gateway: '' }),
    );
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /no leading ingest has named the active gateway/);
  });

  it('uses the only gateway if none is named', async () => {
    const alone = openGatewayPool({ addresses: [address('a')], log: silentLog });
    assert.equal(alone.soleAddress, address('a'));
    await alone.calls.deleteVolume({ volumeId: 'x' }, { timeoutMs: 30_000, gateway: '' });
    alone.close();
  });

  it('refuses an empty list', () =>
    assert.throws(() => openGatewayPool({ addresses: [], log: silentLog }), UsageError));
});

describe('openServiceGatewayPool', () => {
  const pod = podAddress('csi-0', 'uid-0');
  const closers: (() => unknown)[] = [];
  const pods = new Map<string, Address>();
  let pool: GatewayPool;
  let unnamed: GatewayPool;

  before(async () => {
    const folder = await makeFolder();
    await makeCertificates(folder.file('tls'), 'DNS:gateways.default.svc');
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
    });
    const source = await watchOwner(folder.file('tls'), 'gateway');
    const gateway = await startTestGateway(folder, {
      listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
      tls: { source, allowedNames: parseAllowedNames(['DNS:sutler-jobs']) },
      pod: 'uid-0',
    });
    await until(() => gateway.gateway.trouble === undefined, 'ready');
    pods.set(pod, gateway.gateway.address);
    const jobs = await watchOwner(folder.file('tls'), 'jobs');
    const open = (serverName: string): GatewayPool =>
      openServiceGatewayPool({
        endpoints: { ...fixedEndpoints(pods), serverName },
        security: { tls: { source: jobs, serverName: '' } },
        log: silentLog,
      });
    pool = open('gateways.default.svc');
    unnamed = open('');
    closers.push(
      () => folder.remove(),
      () => driver.close(),
      () => source.close(),
      () => gateway.close(),
      () => jobs.close(),
      () => pool.close(),
      () => unnamed.close(),
    );
  });
  after(async () => {
    for (const close of closers.toReversed()) await close();
  });

  const remove = (from: GatewayPool, gateway: string): Promise<unknown> =>
    from.calls.deleteVolume({ volumeId: 'x' }, { timeoutMs: 30_000, gateway });

  it('calls a pod by its IP address, and expects the name of the Service in its certificate', async () => {
    await remove(pool, pod);
    const error = await failureOf(remove(unnamed, pod));
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /127\.0\.0\.1.*cert/);
  });

  it('forwards nothing to a pod that has the IP address of an earlier one', async () => {
    const earlier = podAddress('csi-0', 'uid-of-before');
    const address = pods.get(pod);
    assert.ok(address !== undefined);
    pods.set(earlier, address);
    const error = await failureOf(remove(pool, earlier));
    pods.delete(earlier);
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /it is for pod uid-of-before, and this is uid-0/);
  });

  it('sends nothing to a pod that is not behind the Service, and names the flag', async () => {
    const error = await failureOf(remove(pool, podAddress('csi-1', 'uid-1')));
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /pod:csi-1\/uid-1 is not among .* see its --gateway-service,/);
  });

  it('has no gateway that is called before one is named', async () => {
    const error = await failureOf(remove(pool, ''));
    assert.match(error.message, /no leading ingest has named the active gateway/);
  });
});
