import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { Registry } from 'prom-client';
import { createKubeClient } from '#src/kube/client.ts';
import { type EventInput, EventRecorder } from '#src/kube/events.ts';
import type { Event } from '#src/kube/objects.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Handler, plainAccess, type Reply, startKubeServer } from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const server = await startKubeServer(() => {});
const access = plainAccess(server);
const client = createKubeClient({ access, userAgent: 'sutler-test/1', log: silentLog });
after(async () => {
  await client.close();
  await server.close();
});

const accept: Handler = (seen, reply) => reply.text(seen.method === 'POST' ? 201 : 200, seen.body);
const claim = {
  kind: 'PersistentVolumeClaim',
  apiVersion: 'v1',
  namespace: 'ns',
  name: 'data',
  uid: 'u-1',
  resourceVersion: '7',
};
const warning = (o: Partial<EventInput> = {}): EventInput => ({
  regarding: claim,
  type: 'Warning',
  reason: 'ProvisioningFailed',
  message: 'rpc error: code = Internal desc = no',
  ...o,
});
const normal = (name: string, o: Partial<EventInput> = {}): EventInput => ({
  regarding: { ...claim, name, uid: `uid-${name}` },
  type: 'Normal',
  reason: 'ProvisioningSucceeded',
  message: 'Successfully provisioned volume pvc-1',
  ...o,
});

let nowMs: number;
let recorders: EventRecorder[] = [];
const metrics: { current: Registry } = { current: new Registry() };
const clock: Clock = { nowMs: () => nowMs, sleep: (_ms, signal) => systemClock.sleep(1, signal) };
function start(): EventRecorder {
  const recorder = new EventRecorder({
    client,
    component: 'test.csi_host_1',
    log: silentLog,
    metrics: metrics.current,
    clock,
  });
  recorders.push(recorder);
  return recorder;
}
function body(at: number): Event {
  const event: Event = JSON.parse(server.seen[at]?.body ?? 'null');
  return event;
}
const methods = (): readonly string[] => server.seen.map(({ method }) => method);
async function counted(type: string, result: string): Promise<number> {
  const line = (await metrics.current.metrics())
    .split('\n')
    .find((text) => text.startsWith(`sutler_kube_events_total{type="${type}",result="${result}"}`));
  return Number(line?.split(' ')[1] ?? 0);
}

const untilCounted = (type: string, result: string, count: number): Promise<void> =>
  until(async () => (await counted(type, result)) >= count, `${count} ${type} ${result}`);

beforeEach(() => {
  nowMs = Date.parse('2026-11-20T10:00:00.789Z');
  metrics.current = new Registry();
  server.seen.length = 0;
  server.handler = accept;
});
afterEach(async () => {
  await Promise.all(recorders.map((recorder) => recorder.close(0)));
  recorders = [];
});

describe('EventRecorder', () => {
  it('sends a core/v1 Event in the form that kubectl and upstream use', async () => {
    const recorder = start();
    recorder.record(warning());
    await recorder.close();
    const [seen] = server.seen;
    assert.deepEqual([seen?.method, seen?.path], ['POST', '/api/v1/namespaces/ns/events']);
    const { metadata, ...rest } = body(0);
    assert.match(metadata.name, /^data\.[0-9a-f]{16}$/);
    assert.equal(metadata.namespace, 'ns');
    assert.deepEqual(rest, {
      apiVersion: 'v1',
      kind: 'Event',
      involvedObject: claim,
      type: 'Warning',
      reason: 'ProvisioningFailed',
      message: 'rpc error: code = Internal desc = no',
      source: { component: 'test.csi_host_1' },
      firstTimestamp: '2026-11-20T10:00:00Z',
      lastTimestamp: '2026-11-20T10:00:00Z',
      count: 1,
      eventTime: null,
      reportingComponent: 'test.csi_host_1',
      reportingInstance: '',
    });
  });

  /** The event that is sent. */
  const sent = async (o: Partial<EventInput>): Promise<Event> => {
    const recorder = start();
    recorder.record(warning(o));
    await recorder.close();
    return body(0);
  };

  it('puts events on cluster-scoped objects into the namespace default', async () => {
    const { metadata, source, reportingComponent } = await sent({
      regarding: { kind: 'PersistentVolume', apiVersion: 'v1', name: 'pvc-1', uid: 'u' },
      component: 'external-provisioner',
    });
    assert.equal(server.seen[0]?.path, '/api/v1/namespaces/default/events');
    assert.deepEqual(
      [metadata.namespace, source?.component, reportingComponent],
      ['default', 'external-provisioner', 'external-provisioner'],
    );
  });

  it('cuts the name of the object where that of the event would be too long', async () => {
    const name = `${'n'.repeat(235)}.${'n'.repeat(17)}`;
    const { metadata } = await sent({ regarding: { ...claim, name } });
    assert.match(metadata.name, /^n{235}\.[0-9a-f]{16}$/);
  });

  for (const [what, message, expected] of [
    [
      'escapes control and invisible characters of a message but line breaks and tabs',
      'no\u001b[31m space\u0000\n\t\u202egnp',
      'no\\u001b[31m space\\u0000\n\t\\u202egnp; wait',
    ],
    [
      'cuts a very long message, and tells its length',
      'x'.repeat(1_000_000),
      `${'x'.repeat(994)}… (1000000 characters); wait`,
    ],
  ] as const)
    it(what, async () => {
      assert.equal((await sent({ message, nextStep: '; wait' })).message, expected);
    });

  it('is one event for two workers that report the same, with the count of both', async () => {
    const [first, second] = [start(), start()];
    first.record(warning());
    await untilCounted('Warning', 'created', 1);
    server.handler = (seen, reply) =>
      seen.method === 'POST'
        ? reply.status(409, 'AlreadyExists', 'events already exists')
        : reply.json(200, { count: 7 });
    second.record(warning());
    await untilCounted('Warning', 'updated', 1);
    nowMs += 60_000;
    second.record(warning());
    await second.close();
    assert.deepEqual(methods(), ['POST', 'POST', 'PATCH', 'PATCH']);
    assert.equal(body(1).metadata.name, body(0).metadata.name);
    assert.deepEqual([body(2).count, body(3).count], [undefined, 9]);
  });

  it('patches count and time of an existing event, at most every 10 s', async () => {
    const recorder = start();
    recorder.record(warning());
    await untilCounted('Warning', 'created', 1);
    for (const ms of [1000, 2000, 4000, 10_000]) {
      nowMs += ms;
      recorder.record(warning());
    }
    await recorder.close();
    assert.equal(server.seen.length, 2);
    const { method, path, headers } = server.seen[1] ?? assert.fail('it was not patched');
    const event = `/api/v1/namespaces/ns/events/${body(0).metadata.name}`;
    assert.deepEqual(
      [method, path, headers['content-type']],
      ['PATCH', event, 'application/merge-patch+json'],
    );
    assert.deepEqual(body(1), { count: 5, lastTimestamp: '2026-11-20T10:00:17Z' });
    const results = ['created', 'updated', 'coalesced'].map((each) => counted('Warning', each));
    assert.deepEqual(await Promise.all(results), [1, 1, 3]);
  });

  it('creates an event again that the server has deleted', async () => {
    const recorder = start();
    recorder.record(warning());
    await untilCounted('Warning', 'created', 1);
    server.handler = (seen, reply) =>
      seen.method === 'PATCH'
        ? reply.status(404, 'NotFound', 'events "x" not found')
        : accept(seen, reply);
    nowMs += 3_600_000;
    recorder.record(warning());
    await recorder.close();
    assert.deepEqual([methods(), body(2).count], [['POST', 'PATCH', 'POST'], 2]);
  });

  it('sends Warnings before Normals, and two at a time', async () => {
    const replies: Reply[] = [];
    server.handler = (_, reply) => void replies.push(reply);
    const recorder = start();
    for (let i = 0; i < 4; i++) recorder.record(normal(`n${i}`));
    recorder.record(warning());
    await until(() => replies.length === 2, 'two wait');
    replies[0]?.json(201, {});
    await until(() => replies.length === 3, 'the next one waits');
    assert.equal(body(2).type, 'Warning');
    server.handler = accept;
    for (const reply of replies.slice(1)) reply.json(201, {});
    await recorder.close();
  });

  it('drops Normals beyond 500 at once, never Warnings and those marked isAlwaysTold', async () => {
    const recorder = start();
    for (let i = 0; i < 510; i++) recorder.record(normal(`n${i}`));
    for (let i = 0; i < 10; i++) {
      recorder.record(normal(`told-${i}`, { isAlwaysTold: true }));
      recorder.record(warning({ regarding: { ...claim, uid: `w${i}` } }));
    }
    await recorder.close(60_000);
    assert.equal(server.seen.length, 520);
    assert.equal(await counted('Normal', 'dropped-rate'), 10);
  });

  it('queues 2,000 while the server is slow', async () => {
    server.handler = () => {};
    const recorder = start();
    recorder.record(normal('n'));
    for (let i = 0; i < 2100; i++)
      recorder.record(warning({ regarding: { ...claim, uid: `w${i}` } }));
    assert.equal(await counted('Warning', 'dropped-full'), 99, 'two are under way');
    await until(() => server.seen.length === 2, 'those under way arrived');
  });

  it('keeps objects, types and reasons apart, and no versions of an object', async () => {
    const recorder = start();
    recorder.record(warning());
    recorder.record(warning({ regarding: { ...claim, uid: 'v' } }));
    recorder.record(warning({ type: 'Normal' }));
    recorder.record(warning({ reason: 'Other' }));
    recorder.record(warning({ regarding: { ...claim, resourceVersion: '8' } }));
    await recorder.close();
    assert.equal(server.seen.length, 4);
    assert.equal(await counted('Warning', 'coalesced'), 1);
  });

  it('writes 25 of an object at once, then one every five minutes', async () => {
    const recorder = start();
    const recordReason = (reason: string): void => recorder.record(warning({ reason }));
    for (let i = 0; i < 30; i++) recordReason(`R${i}`);
    assert.equal(await counted('Warning', 'dropped-spam'), 5);
    recorder.record(warning({ regarding: { ...claim, uid: 'v' } }));
    nowMs += 301_000;
    recordReason('X');
    recordReason('Y');
    await recorder.close();
    assert.equal(server.seen.length, 27);
    assert.equal(await counted('Warning', 'dropped-spam'), 6);
  });

  it('does not retry what the server refused', async () => {
    server.handler = (_, reply) => reply.status(403, 'Forbidden', 'namespace is being terminated');
    const recorder = start();
    recorder.record(warning());
    await recorder.close();
    assert.deepEqual([server.seen.length, await counted('Warning', 'failed')], [1, 1]);
  });

  it('retries under the same name without an answer, and renews what exists already', async () => {
    let tries = 0;
    server.handler = (seen, reply) => {
      if (++tries < 3) return void seen.raw.socket.destroy();
      if (tries > 3) return accept(seen, reply);
      return reply.status(409, 'AlreadyExists', 'events already exists');
    };
    const recorder = start();
    recorder.record(warning());
    await until(() => server.seen.length === 4, 'it was tried three times, then patched');
    await recorder.close();
    assert.equal(new Set([0, 1, 2].map((at) => body(at).metadata.name)).size, 1);
    assert.equal(await counted('Warning', 'updated'), 1);
  });

  it('closes in the given time though the server does not answer', async () => {
    server.handler = () => {};
    const recorder = start();
    for (let i = 0; i < 20; i++) recorder.record(normal(`n${i}`));
    await until(() => server.seen.length === 2, 'two are under way');
    await recorder.close(30);
    assert.deepEqual([await counted('Normal', 'failed'), server.seen.length], [2, 2]);
  });
});
