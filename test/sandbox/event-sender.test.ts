import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { KubeClient } from '#src/kube/client.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type EventSender, startEventSender } from '../../sandbox/event-sender/event-sender.ts';
import { claim, volume } from '../conformance/objects.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

describe('the sandbox’s stand-in for Knative’s ApiServerSource', () => {
  let cluster: SandboxCluster;
  let client: KubeClient;
  let sender: EventSender;
  let received: string[];
  let refusals = 0;
  const sink = createServer((request, response) => {
    const type = String(request.headers['ce-type']).split('.').at(-1);
    const name = String(request.headers['ce-subject']).split('/').at(-1);
    if (refusals > 0) response.statusCode = 503;
    else received.push(`${type} ${name}`);
    refusals -= 1;
    request.resume();
    response.end();
  });
  before(async () => {
    cluster = await openSandboxCluster();
    client = await cluster.client();
    sink.listen(0, '127.0.0.1');
    await client.create(claims, 'default', claim('before'));
    const { port } = sink.address() as AddressInfo;
    sender = startEventSender({
      client,
      sink: `http://127.0.0.1:${port}/`,
      source: 'https://127.0.0.1',
      clock: systemClock,
      log: silentLog,
    });
    await sender.ready;
  });
  after(async () => {
    await sender.stop();
    sink.closeAllConnections();
    sink.close();
    await cluster.close();
  });
  beforeEach(() => (received = []));
  const isReceived = (line: string) => until(() => received.includes(line), line);

  it('announces changes and deletions of claims and volumes, but nothing that existed before', async () => {
    await client.create(volumes, undefined, volume('volume'));
    await client.create(claims, 'default', claim('claim'));
    const where = { namespace: 'default', name: 'claim' };
    const body = { metadata: { finalizers: null } };
    await client.patch(claims, where, { type: 'merge', body });
    await client.delete(claims, where);
    await isReceived('delete claim');
    await isReceived('add volume');
    assert.deepEqual(
      received.filter((line) => line !== 'add volume'),
      ['add claim', 'update claim', 'delete claim'],
    );
  });

  it('sends an event again that was refused', async () => {
    refusals = 1;
    await client.create(claims, 'default', claim('again'));
    await isReceived('add again');
  });

  it('goes on where the connection was cut, without repetitions', async () => {
    cluster.api.stopWatches('end', 'persistentvolumeclaims');
    await client.create(claims, 'default', claim('second'));
    await isReceived('add second');
    assert.deepEqual(received, ['add second']);
  });
});
