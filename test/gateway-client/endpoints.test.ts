import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Endpoints, parseService, watchEndpoints } from '#src/gateway-client/endpoints.ts';
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
  const changed: string[] = [];
  const service = { namespace: 'default', name: 'gateways' };
  const textOf = (name: string): string | undefined => {
    const address = endpoints.addressOf(name);
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
    endpoints = watchEndpoints({ client: kube, service, log: silentLog });
    endpoints.onChange((node) => changed.push(node));
    await until(() => endpoints.trouble === undefined, 'the slices are listed');
  });
  after(async () => {
    await endpoints.stop();
    await cluster.close();
  });

  const podOf = (name: string) => ({ kind: 'Pod', namespace: 'default', name, uid: `u-${name}` });

  it('finds the gateways of pods, ready or not, by the port named gateway', async () => {
    await write('one', {
      endpoints: [
        { addresses: ['10.0.0.1'], targetRef: podOf('a'), conditions: { ready: true } },
        {
          addresses: ['10.0.0.2'],
          targetRef: podOf('b'),
          conditions: { ready: false, terminating: true },
        },
        { addresses: [], targetRef: podOf('c') },
      ],
    });
    await until(() => textOf('pod:a/u-a') !== undefined, 'the slice is seen');
    assert.equal(textOf('pod:a/u-a'), 'dns:///10.0.0.1:9808');
    assert.deepEqual([...endpoints.names()].sort(), ['pod:a/u-a', 'pod:b/u-b']);
    assert.deepEqual(changed.splice(0).sort(), ['pod:a/u-a', 'pod:b/u-b']);
  });

  it('ignores other Services, and slices without a port', async () => {
    const endpoint = [{ addresses: ['10.0.0.9'], targetRef: podOf('x') }];
    await write('foreign', { endpoints: endpoint }, 'other');
    await write('portless', { endpoints: endpoint, ports: [] });
    await write('null', { endpoints: null, ports: null });
    await write('last', { endpoints: [{ addresses: ['fd00::1'], targetRef: podOf('v6') }] });
    await until(() => textOf('pod:v6/u-v6') !== undefined, 'the last slice is seen');
    assert.equal(textOf('pod:v6/u-v6'), 'dns:///[fd00::1]:9808');
    assert.equal(textOf('pod:x/u-x'), undefined);
  });

  it('takes the same one of two addresses of a pod, whatever their order', async () => {
    await write('two', { endpoints: [{ addresses: ['10.0.0.0'], targetRef: podOf('a') }] });
    await until(() => textOf('pod:a/u-a') === 'dns:///10.0.0.0:9808', 'the lower one is taken');
  });

  it('tells of a gateway that goes', async () => {
    changed.length = 0;
    await kube.delete(endpointSlices, { namespace: 'default', name: 'last' });
    await until(() => textOf('pod:v6/u-v6') === undefined, 'the gateway is gone');
    assert.deepEqual(changed, ['pod:v6/u-v6']);
  });

  it('names gateways without a pod by their IP address', async () => {
    await write('hosts', { endpoints: [{ addresses: ['10.0.1.2'] }] });
    await until(() => textOf('10.0.1.2') !== undefined, 'the slice is seen');
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
