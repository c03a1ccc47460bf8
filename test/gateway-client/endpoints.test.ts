import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  type Endpoints,
  parseNodeGateways,
  parseService,
  podOrHost,
  readyNode,
  watchEndpoints,
} from '#src/gateway-client/endpoints.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { endpointSlices } from '#src/kube/resources.ts';
import { formatAddress } from '#src/runtime/address.ts';
import { silentLog } from '#src/runtime/log.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

describe('watchEndpoints', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let endpoints: Endpoints;
  let pods: Endpoints;
  const changed: string[] = [];
  const service = { namespace: 'default', name: 'gateways' };
  const textOf = (node: string): string | undefined => {
    const address = endpoints.addressOf(node);
    return address && formatAddress(address);
  };
  const write = (name: string, fields: object, serviceName = service.name): Promise<unknown> =>
    kube.create<KubeObject>(endpointSlices, 'default', {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name,
        namespace: 'default',
        labels: { 'kubernetes.io/service-name': serviceName },
      },
      addressType: 'IPv4',
      ports: [
        { name: 'http', port: 8081 },
        { name: 'gateway', port: 9808 },
      ],
      ...fields,
    });

  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    endpoints = watchEndpoints({ client: kube, service, nameOf: readyNode, log: silentLog });
    pods = watchEndpoints({ client: kube, service, nameOf: podOrHost, log: silentLog });
    endpoints.onChange((node) => changed.push(node));
    await until(() => endpoints.trouble === undefined, 'the slices are listed');
  });
  after(async () => {
    await endpoints.stop();
    await pods.stop();
    await cluster.close();
  });

  it('finds the gateways that are ready, by the port named gateway', async () => {
    await write('one', {
      endpoints: [
        { addresses: ['10.0.0.1'], nodeName: 'a', conditions: { ready: true } },
        { addresses: ['10.0.0.2'], nodeName: 'b', conditions: { ready: false } },
        { addresses: ['10.0.0.3'], nodeName: 'c' },
        { addresses: ['10.0.0.4'], nodeName: 'd', conditions: { ready: true, terminating: true } },
        { addresses: ['10.0.0.5'] },
        { addresses: [], nodeName: 'e' },
      ],
    });
    await until(() => textOf('a') !== undefined, 'the slice is seen');
    assert.equal(textOf('a'), 'dns:///10.0.0.1:9808');
    assert.deepEqual([...endpoints.names()].sort(), ['a', 'c']);
    assert.deepEqual(changed.splice(0).sort(), ['a', 'c']);
  });

  it('ignores other Services, and slices without a port', async () => {
    const ready = [{ addresses: ['10.0.0.9'], nodeName: 'x' }];
    await write('foreign', { endpoints: ready }, 'other');
    await write('portless', { endpoints: ready, ports: [] });
    await write('null', { endpoints: null, ports: null });
    await write('last', { endpoints: [{ addresses: ['fd00::1'], nodeName: 'v6' }] });
    await until(() => textOf('v6') !== undefined, 'the last slice is seen');
    assert.equal(textOf('v6'), 'dns:///[fd00::1]:9808');
    assert.equal(textOf('x'), undefined);
  });

  it('takes the same one of two that are ready on a node, whatever their order', async () => {
    await write('two', { endpoints: [{ addresses: ['10.0.0.0'], nodeName: 'a' }] });
    await until(() => textOf('a') === 'dns:///10.0.0.0:9808', 'the lower address is taken');
  });

  it('tells of a gateway that goes', async () => {
    changed.length = 0;
    await kube.delete(endpointSlices, { namespace: 'default', name: 'last' });
    await until(() => textOf('v6') === undefined, 'the gateway is gone');
    assert.deepEqual(changed, ['v6']);
  });

  it('names gateways by their pods, ready or not, and those without a pod by their IP address', async () => {
    const targetRef = { kind: 'Pod', namespace: 'default', name: 'csi-0', uid: 'u-1' };
    await write('pods', {
      endpoints: [
        { addresses: ['10.0.1.1'], targetRef, conditions: { ready: false, terminating: true } },
        { addresses: ['10.0.1.2'], conditions: { ready: true } },
      ],
    });
    await until(() => pods.addressOf('pod:csi-0/u-1') !== undefined, 'the slice is seen');
    assert.deepEqual(pods.addressOf('pod:csi-0/u-1'), {
      kind: 'tcp',
      host: '10.0.1.1',
      port: 9808,
    });
    assert.ok([...pods.names()].includes('10.0.1.2'));
  });

  it('expects the name of the Service in certificates', () =>
    assert.equal(endpoints.serverName, 'gateways.default.svc'));
});

describe('parseService', () => {
  it('reads a namespace and a name', () =>
    assert.deepEqual(parseService('ns/gw'), { namespace: 'ns', name: 'gw' }));
  it('refuses anything else, and shows what to write', () => {
    for (const text of ['gw', 'a/b/c', '/gw', 'ns/', 'Ns/gw'])
      assert.throws(() => parseService(text), /--gateway-service: .* write NAMESPACE\/NAME/);
  });
});

describe('parseNodeGateways', () => {
  it('reads an address for each node', () =>
    assert.deepEqual(
      [...parseNodeGateways(['a=unix:///s', 'b=dns:///h:1'])].map(([node, address]) => [
        node,
        formatAddress(address),
      ]),
      [
        ['a', 'unix:///s'],
        ['b', 'dns:///h:1'],
      ],
    ));
  it('refuses an item without an address, and a node with two', () => {
    assert.throws(() => parseNodeGateways(['a']), /not NODE=ADDRESS/);
    assert.throws(() => parseNodeGateways(['a=/s', 'a=/t']), /node a has two addresses/);
  });
});
