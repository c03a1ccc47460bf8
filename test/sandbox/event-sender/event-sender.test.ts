import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { claims, volumes } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type EventSender, startEventSender } from '../../../sandbox/event-sender/event-sender.ts';
import type { Sink } from '../../../sandbox/event-sender/sink.ts';
import { claim, volume } from '../../conformance/objects.ts';
import { openSandboxCluster } from '../../harness/sandbox-cluster.ts';
import { until } from '../../harness/until.ts';

describe('startEventSender', () => {
  it('announces nothing that existed before', async (t) => {
    const scene = await openScene(t);
    await scene.createClaim('before');
    await scene.start();
    await scene.createClaim('after');
    await scene.untilSent('add after');
    assert.deepEqual(scene.sent, ['add after']);
  });

  it('announces changes and deletions of claims and volumes, in the order of each kind', async (t) => {
    const scene = await openScene(t);
    await scene.start();
    await scene.createClaim('claim');
    await scene.client.create(volumes, undefined, volume('volume'));
    await scene.patchClaim('claim', { metadata: { annotations: { a: 'b' } } });
    await scene.patchClaim('claim', { metadata: { finalizers: null } });
    await scene.client.delete(claims, { namespace: 'default', name: 'claim' });
    await scene.untilSent('delete claim');
    assert.deepEqual(
      scene.sent.filter((each) => each.endsWith('claim')),
      ['add claim', 'update claim', 'update claim', 'delete claim'],
    );
    await scene.untilSent('add volume');
  });

  it('goes on where the connection was cut, without repetitions', async (t) => {
    const scene = await openScene(t);
    await scene.start();
    await scene.createClaim('first');
    await scene.untilSent('add first');
    scene.api.stopWatches('end', 'persistentvolumeclaims');
    await scene.createClaim('second');
    await scene.untilSent('add second');
    assert.deepEqual(scene.sent, ['add first', 'add second']);
  });

  it('loses what happens between an expired watch and the next list', async (t) => {
    const scene = await openScene(t);
    await scene.start();
    scene.api.stopWatches('expire', 'persistentvolumeclaims');
    await scene.createClaim('lost');
    const isWatching = () => scene.api.watchCount('persistentvolumeclaims') === 1;
    await until(isWatching, 'a watch again');
    await scene.createClaim('seen');
    await scene.untilSent('add seen');
    assert.deepEqual(scene.sent, ['add seen']);
  });

  it('counts what was dropped and goes on with the next event', async (t) => {
    const scene = await openScene(t);
    const sender = await scene.start();
    scene.refuse('add refused');
    await scene.createClaim('refused');
    await scene.createClaim('taken');
    await scene.untilSent('add taken');
    assert.deepEqual({ sent: sender.sent, dropped: sender.dropped }, { sent: 1, dropped: 1 });
  });
});

async function openScene(t: TestContext) {
  const cluster = await openSandboxCluster();
  const client = await cluster.client();
  const sent: string[] = [];
  const refused = new Set<string>();
  const sink: Sink = {
    send({ headers }) {
      const operation = headers['ce-type']?.split('.').at(-1) ?? '';
      const line = `${operation} ${headers['ce-name'] ?? ''}`;
      if (refused.has(line)) return Promise.resolve('refused');
      sent.push(line);
      return Promise.resolve(undefined);
    },
    close: () => Promise.resolve(),
  };
  let sender: EventSender | undefined;
  t.after(async () => {
    await sender?.stop();
    await cluster.close();
  });
  return {
    api: cluster.api,
    client,
    sent,
    refuse: (line: string) => refused.add(line),
    async start(): Promise<EventSender> {
      const source = 'https://127.0.0.1';
      const common = { client, sink, source, clock: systemClock, log: silentLog };
      sender = startEventSender({ ...common, mode: 'reference' });
      await sender.ready;
      return sender;
    },
    createClaim: (name: string) => client.create(claims, 'default', claim(name)),
    patchClaim: (name: string, body: unknown) =>
      client.patch(claims, { namespace: 'default', name }, { type: 'merge', body }),
    untilSent: (line: string) => until(() => sent.includes(line), line),
  };
}
