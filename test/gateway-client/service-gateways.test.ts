import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { GatewayPool } from '#src/gateway-client/pool.ts';
import {
  parseService,
  SERVICE_REMEDY,
  ServiceGateways,
} from '#src/gateway-client/service-gateways.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { endpointSlices } from '#src/kube/resources.ts';
import { parseAllowedNames } from '#src/runtime/certificate-names.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeCertificates, watchOwner } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, startTestGateway } from '../harness/csi-gateway.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const SERVICE = { namespace: 'default', name: 'gateways' };
const podOf = (name: string) => ({ kind: 'Pod', namespace: 'default', name, uid: `u-${name}` });

describe('ServiceGateways', () => {
  const closers = new Closers();
  let kube: KubeClient;
  let port: number;
  let gateways: ServiceGateways;
  /** Expects another name in certificates. */
  let misnamed: ServiceGateways;
  const write = (name: string, fields: object, service = SERVICE.name): Promise<unknown> =>
    kube.create<KubeObject>(endpointSlices, 'default', {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name, namespace: 'default', labels: { 'kubernetes.io/service-name': service } },
      addressType: 'IPv4',
      ports: [
        { name: 'http', port: 8081 },
        { name: 'gateway', port },
      ],
      ...fields,
    });
  const addresses = (): readonly string[] => gateways.list().map(({ address }) => address);
  const remove = (gateway: string, from = gateways): Promise<unknown> =>
    new GatewayPool(() => from.list(), '', SERVICE_REMEDY).deleteVolume(
      { volumeId: 'x' },
      { timeoutMs: 30_000, gateway },
    );

  before(async () => {
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    await makeCertificates(folder.file('tls'), 'DNS:gateways.default.svc');
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
    });
    closers.add('driver', () => driver.close());
    const source = await watchOwner(folder.file('tls'), 'gateway');
    closers.add('gateway TLS', () => source.close());
    const gateway = await startTestGateway(folder, {
      listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
      tls: { source, allowedNames: parseAllowedNames(['DNS:sutler-jobs']) },
      pod: 'u-a',
    });
    closers.add('gateway', () => gateway.close());
    await until(() => gateway.gateway.trouble === undefined, 'ready');
    const { address } = gateway;
    assert.ok(address.kind === 'tcp');
    ({ port } = address);
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    kube = await cluster.client();
    const jobs = await watchOwner(folder.file('tls'), 'jobs');
    closers.add('jobs TLS', () => jobs.close());
    const open = (serverName: string): ServiceGateways => {
      const opened = new ServiceGateways({
        kube,
        service: SERVICE,
        tls: { source: jobs, serverName },
        showsShortSecrets: false,
        log: silentLog,
      });
      closers.add('gateways', () => opened.close());
      return opened;
    };
    gateways = open('');
    misnamed = open('other');
    await until(() => gateways.trouble === undefined, 'the slices are listed');
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  it('finds the gateways of pods, ready or not, by the port named gateway', async () => {
    await write('one', {
      endpoints: [
        { addresses: ['127.0.0.1'], targetRef: podOf('a'), conditions: { ready: true } },
        {
          addresses: ['10.0.0.2'],
          targetRef: podOf('b'),
          conditions: { ready: false, terminating: true },
        },
        { addresses: [], targetRef: podOf('c') },
      ],
    });
    await until(() => addresses().length > 0, 'the slice is seen');
    assert.deepEqual(addresses(), ['pod:a/u-a', 'pod:b/u-b']);
  });

  it('calls a pod by its IP address, and expects the name of the Service in its certificate', async () => {
    await remove('pod:a/u-a');
    const error = await failureOf(remove('pod:a/u-a', misnamed));
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /127\.0\.0\.1.*cert/);
  });

  it('ignores other Services, and slices without a port', async () => {
    const endpoints = [{ addresses: ['10.0.0.9'], targetRef: podOf('x') }];
    await write('foreign', { endpoints }, 'other');
    await write('portless', { endpoints, ports: [] });
    await write('null', { endpoints: null, ports: null });
    await write('last', { endpoints: [{ addresses: ['fd00::1'], targetRef: podOf('v6') }] });
    await until(() => addresses().includes('pod:v6/u-v6'), 'the last slice is seen');
    assert.ok(!addresses().includes('pod:x/u-x'));
  });

  it('forgets a gateway that goes, and sends nothing to it', async () => {
    await kube.delete(endpointSlices, { namespace: 'default', name: 'last' });
    await until(() => !addresses().includes('pod:v6/u-v6'), 'the gateway is gone');
    const error = await failureOf(remove('pod:v6/u-v6'));
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /pod:v6\/u-v6 is not among .* see --gateway-service,/);
  });

  it('forwards nothing to a pod that has the IP address of an earlier one', async () => {
    const earlier = { ...podOf('a'), uid: 'of-before' };
    await write('earlier', { endpoints: [{ addresses: ['127.0.0.1'], targetRef: earlier }] });
    await until(() => addresses().includes('pod:a/of-before'), 'the slice is seen');
    const error = await failureOf(remove('pod:a/of-before'));
    assert.equal(error.notForwarded, true);
    assert.match(error.message, /the call is for pod of-before, this is u-a/);
  });
});

describe('parseService', () => {
  it('reads a namespace and a name', () =>
    assert.deepEqual(parseService('ns/gw'), { namespace: 'ns', name: 'gw' }));
  it('refuses anything else, and shows what to write', () => {
    for (const text of ['gw', 'a/b/c', '/gw', 'ns/', 'Ns/gw'])
      assert.throws(() => parseService(text), /--gateway-service: .* write NAMESPACE\/NAME/);
  });
});
