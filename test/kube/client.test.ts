import assert from 'node:assert/strict';
import { after, beforeEach, describe, it } from 'node:test';
import { Registry } from 'prom-client';
import { createKubeClient, type KubeClient, type WatchOptions } from '#src/kube/client.ts';
import { type ClusterAccess, NO_CREDENTIALS, renewCredentials } from '#src/kube/credentials.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Volume } from '#src/kube/objects.ts';
import type { RequestSenderOptions } from '#src/kube/request-sender.ts';
import { claims, secrets, volumes } from '#src/kube/resources.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import {
  type Handler,
  type KubeServer,
  type OpenWatch,
  plainAccess,
  startKubeServer,
  statusOf,
} from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const server = await startKubeServer(() => {});
const clients: KubeClient[] = [];

function connect(
  o: Partial<RequestSenderOptions> & { to?: Partial<ClusterAccess>; on?: KubeServer } = {},
): KubeClient {
  const { to, on, ...options } = o;
  const client = createKubeClient({
    access: plainAccess(on ?? server, to),
    userAgent: 'sutler-test/1',
    log: silentLog,
    ...options,
  });
  clients.push(client);
  return client;
}

/** Credentials that are never renewed. */
function bearer(token: string): ClusterAccess['credentials'] {
  const credentials = { ...NO_CREDENTIALS, headers: { authorization: `Bearer ${token}` } };
  return () => Promise.resolve(credentials);
}

/** Answers by each handler in turn, then always by the last one. */
function inTurn(...handlers: readonly Handler[]): Handler {
  let at = 0;
  return (seen, reply) => handlers[Math.min(at++, handlers.length - 1)]?.(seen, reply);
}

/** A clock that records sleeps and returns at once. */
function noteSleeps(): { readonly sleptMs: number[]; readonly clock: Clock } {
  const sleptMs: number[] = [];
  return {
    sleptMs,
    clock: {
      nowMs: () => Date.now(),
      sleep: (ms) => {
        sleptMs.push(ms);
        return Promise.resolve();
      },
    },
  };
}

const reset: Handler = (seen) => void seen.raw.socket.resetAndDestroy();
const ok: Handler = (seen, reply) => reply.json(200, { metadata: { name: 'x' }, echo: seen.body });
const volume = { name: 'x' };
const busy =
  (code: number, headers: Record<string, string>): Handler =>
  (_, reply) =>
    reply.status(code, 'TooManyRequests', 'slow down', headers);
const locked: Handler = (seen, reply) =>
  seen.headers.authorization === 'Bearer new'
    ? ok(seen, reply)
    : reply.status(401, 'Unauthorized', 'Unauthorized');

/** Accepts every watch and keeps it open. */
const open = (): { watches: OpenWatch[] } => {
  const watches: OpenWatch[] = [];
  server.handler = (_, reply) => void watches.push(reply.watch());
  return { watches };
};

/** Options of a watch that does nothing. */
const nothing: WatchOptions = {
  resourceVersion: '1',
  timeoutSeconds: 300,
  idleTimeoutMs: 5000,
  onOpen: () => {},
  onEvent: () => {},
};

beforeEach(() => {
  server.seen.length = 0;
  server.handler = ok;
});
after(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await server.close();
});

describe('KubeClient', () => {
  it('reads one object below the path of the server, with its user agent and credentials', async () => {
    const to = { server: new URL(`${server.url}/k8s/clusters/c-1/`), credentials: bearer('t') };
    const volume = await connect({ to }).get<Volume>(volumes, { name: '../secrets/x?y' });
    assert.equal(volume?.metadata.name, 'x');
    const [seen] = server.seen;
    assert.deepEqual(
      [seen?.method, seen?.path, seen?.headers['user-agent'], seen?.headers.authorization],
      [
        'GET',
        '/k8s/clusters/c-1/api/v1/persistentvolumes/..%2Fsecrets%2Fx%3Fy',
        'sutler-test/1',
        'Bearer t',
      ],
    );
  });

  it('returns undefined for an object that does not exist', async () => {
    server.handler = (_, reply) => reply.status(404, 'NotFound', 'persistentvolumes "x" not found');
    const client = connect();
    assert.equal(await client.get(volumes, volume), undefined);
    assert.equal(await client.delete(volumes, volume), undefined);
    const patch = { type: 'merge', body: {} } as const;
    await assert.rejects(client.patch(volumes, volume, patch), { name: 'KubeError', code: 404 });
  });

  it('throws for a 404 that says nothing about the object', async () => {
    const client = connect();
    server.handler = (_, reply) => reply.text(404, '404 page not found');
    await assert.rejects(client.get(volumes, volume), { reason: 'Not Found' });
    const details = { name: 'ns', kind: 'namespaces' };
    const status = statusOf(404, 'NotFound', 'namespaces "ns" not found');
    server.handler = (_, reply) => reply.json(404, { ...status, details });
    const call = client.get(claims, { namespace: 'ns', name: 'c' });
    await assert.rejects(call, { serverMessage: 'namespaces "ns" not found' });
  });

  it('sends the body of a DELETE with its length, else preconditions would be ignored', async () => {
    const preconditions = { uid: 'u-ü', resourceVersion: '5' };
    await connect().delete(volumes, volume, { preconditions });
    const { headers, body } = server.seen[0] ?? assert.fail('nothing was sent');
    assert.equal(headers['content-length'], String(Buffer.byteLength(body)));
    assert.equal(headers['transfer-encoding'], undefined);
    const options = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions };
    assert.deepEqual(JSON.parse(body), options);
  });
});

describe('an answer that is no JSON', () => {
  const read = (body: string): Promise<unknown> => {
    server.handler = (_, reply) => reply.text(200, body);
    return connect().get(secrets, { namespace: 'ns', name: 's' });
  };
  it('is quoted, unless it may contain a secret', async () => {
    const message = /get secrets ns\/s: the answer is not JSON: <html>login/;
    await assert.rejects(read('<html>login</html>'), { name: 'KubeError', message });
    await assert.rejects(read('{"password":aHVudGVyMg==}'), (error: KubeError) => {
      assert.match(error.message, /not JSON: 25 characters of broken JSON/);
      return !`${error.stack} ${String(error.cause)}`.includes('aHVudGVyMg');
    });
  });

  it('is no success of a create either, even if its caller does not need the answer', async () => {
    const create = (body: string): Promise<unknown> => {
      server.handler = (_, reply) => reply.text(200, body);
      return connect().create(volumes, undefined, {}, { isAnswerNeeded: false });
    };
    assert.equal(await create('{}'), undefined);
    await assert.rejects(create('<html>login</html>'), /create persistentvolumes: .* not JSON/);
  });
});

describe('retries', () => {
  for (const code of [429, 500, 503, 504])
    it(`wait for the Retry-After of a ${code}, also of a write`, async () => {
      const once = busy(code, { 'retry-after': '1' });
      server.handler = inTurn(busy(code, { 'retry-after': '2' }), once, ok);
      const { clock, sleptMs } = noteSleeps();
      await connect({ clock }).create(volumes, undefined, {});
      assert.equal(server.seen.length, 3);
      const [first = 0, second = 0] = sleptMs;
      assert.ok(first >= 2000 && first <= 3000, String(sleptMs));
      assert.ok(second >= 1000 && second <= 1500, String(sleptMs));
    });

  it('wait one second after a 429 without Retry-After', async () => {
    server.handler = inTurn((_, reply) => reply.text(429, 'Too many requests'), ok);
    const { clock, sleptMs } = noteSleeps();
    await connect({ clock }).get(volumes, volume);
    assert.ok((sleptMs[0] ?? 0) >= 1000, String(sleptMs));
  });

  it('are not made after a 500 without Retry-After', async () => {
    server.handler = busy(500, {});
    await assert.rejects(connect().get(volumes, volume), { code: 500 });
    assert.equal(server.seen.length, 1);
  });

  it("end after seven attempts with the server's message", async () => {
    server.handler = busy(429, { 'retry-after': '1' });
    const { clock } = noteSleeps();
    const error = { name: 'KubeError', serverMessage: 'slow down', retryAfterMs: 1000 };
    await assert.rejects(connect({ clock }).get(volumes, volume), error);
    assert.equal(server.seen.length, 7);
  });

  it("do not wait beyond the call's own time", async () => {
    server.handler = busy(429, { 'retry-after': '30' });
    const { clock, sleptMs } = noteSleeps();
    const call = connect({ clock }).get(volumes, volume, { timeoutMs: 2000 });
    await assert.rejects(call, { name: 'KubeError', code: 429 });
    assert.deepEqual([sleptMs, server.seen.length], [[], 1]);
  });
});

describe('a rate of requests', () => {
  const startMs = performance.now();

  it('admits the burst at once, and then the rate', async () => {
    const { clock, sleptMs } = noteSleeps();
    const client = connect({ clock, qps: 1, burst: 3 });
    await Promise.all(Array.from({ length: 5 }, () => client.get(volumes, volume)));
    assert.equal(server.seen.length, 5);
    const [fourth = 0, fifth = 0] = sleptMs;
    const passedMs = performance.now() - startMs;
    assert.ok(fourth > 1000 - passedMs && fourth <= 1000, String(sleptMs));
    assert.ok(fifth > fourth && fifth <= 2000, String(sleptMs));
  });

  it('refuses at once a request whose turn does not come in time', async () => {
    const client = connect({ qps: 0.001, burst: 1 });
    await client.get(volumes, volume);
    await assert.rejects(client.get(volumes, volume), { name: 'KubeError', reason: 'Timeout' });
    assert.equal(server.seen.length, 1);
  });
});

describe('faults', () => {
  it('lead to another try of a read whose connection broke', async () => {
    server.handler = inTurn(reset, (seen) => void seen.raw.socket.destroy(), ok);
    assert.notEqual(await connect().get(volumes, volume), undefined);
    assert.equal(server.seen.length, 3);
  });

  it('do not lead to another try of a write that may have been sent', async () => {
    server.handler = reset;
    const call = connect().create(volumes, undefined, {});
    await assert.rejects(call, { name: 'KubeError', code: 0, reason: 'Network' });
    assert.equal(server.seen.length, 1);
  });

  it('lead to other tries of a write that was not sent', async () => {
    const gone = await startKubeServer(ok);
    await gone.close();
    const { clock, sleptMs } = noteSleeps();
    const error = {
      code: 0,
      reason: 'Unreachable',
      message: /create persistentvolumes: .*ECONNREFUSED/,
    };
    await assert.rejects(connect({ clock, on: gone }).create(volumes, undefined, {}), error);
    assert.equal(sleptMs.length, 6);
  });

  it('end a call whose answer does not come in time, headers or body', async () => {
    const client = connect();
    const timeout = { name: 'KubeError', code: 0, reason: 'Timeout' };
    server.handler = () => {};
    await assert.rejects(client.get(volumes, volume, { timeoutMs: 30 }), timeout);
    server.handler = (_, reply) =>
      void reply.response.writeHead(200, { 'content-length': '100' }).write('{');
    await assert.rejects(client.get(volumes, volume, { timeoutMs: 30 }), timeout);
  });

  // A call of the test before may still arrive: it has another method, or the name "x".
  it('aborts a call at once, before and while it is under way', async () => {
    server.handler = () => {};
    const client = connect();
    const create = (signal: AbortSignal) => client.create(volumes, undefined, {}, { signal });
    const posts = (): number => server.seen.filter(({ method }) => method === 'POST').length;
    const aborted = { name: 'KubeError', reason: 'Aborted' };
    await assert.rejects(create(AbortSignal.abort()), aborted);
    assert.equal(posts(), 0);
    const abort = new AbortController();
    const call = create(abort.signal);
    await until(() => posts() === 1, 'the request arrived');
    abort.abort();
    await assert.rejects(call, aborted);
  });

  it('does not send a request that was aborted while it waited for a connection', async () => {
    const client = connect({ maxInFlight: 1 });
    const names = () =>
      server.seen.map(({ path }) => path.split('/').at(-1)).filter((name) => name !== 'x');
    server.handler = () => {};
    const [first, second] = [new AbortController(), new AbortController()];
    const underWay = client.get(volumes, { name: 'first' }, { signal: first.signal });
    const waiting = client.create(volumes, undefined, {}, { signal: second.signal });
    await until(() => names().length > 0, 'the first arrived');
    second.abort();
    await assert.rejects(waiting, { name: 'KubeError', reason: 'Aborted' });
    first.abort();
    await assert.rejects(underWay);
    server.handler = ok;
    await client.get(volumes, { name: 'last' });
    assert.deepEqual(names(), ['first', 'last']);
  });

  it('ends watches at close, lets calls finish, and refuses later calls', async () => {
    const { watches } = open();
    const client = connect();
    const watching = assert.rejects(client.watch(claims, nothing), KubeError);
    await until(() => watches.length === 1, 'the watch is open');
    const answers: (() => void)[] = [];
    server.handler = (_, reply) => void answers.push(() => reply.json(200, {}));
    const underWay = client.get(volumes, { name: 'x' });
    await until(() => answers.length === 1, 'the request arrived');
    const closed = client.close();
    await watching;
    answers[0]?.();
    await closed;
    assert.deepEqual(await underWay, {});
    await assert.rejects(client.create(volumes, undefined, {}), { code: 0, reason: 'Aborted' });
  });
});

describe('credentials', () => {
  it('are read again once after a 401, and the request is retried, also a write', async () => {
    server.handler = locked;
    const reads: boolean[] = [];
    const read = async (isRefused: boolean) => {
      reads.push(isRefused);
      if (isRefused) await until(() => server.seen.length === 10, 'all were refused');
      const authorization = `Bearer ${isRefused ? 'new' : 'old'}`;
      return { ...NO_CREDENTIALS, headers: { authorization } };
    };
    const renewal = { where: 'test', maxAgeMs: 60_000, nowMs: Date.now };
    const client = connect({ to: { credentials: await renewCredentials(read, renewal) } });
    await Promise.all(Array.from({ length: 10 }, () => client.create(volumes, undefined, {})));
    assert.deepEqual(reads, [false, true], 'ten refused requests share one read');
    assert.equal(server.seen.length, 20);
  });

  it('that stay refused are an error after one retry', async () => {
    server.handler = locked;
    const client = connect({ to: { credentials: bearer('old') } });
    await assert.rejects(client.get(volumes, volume), { name: 'KubeError', code: 401 });
    assert.equal(server.seen.length, 2);
  });

  it('that can not be read make the call fail unsent', async () => {
    const credentials = () => Promise.reject(new Error('the plugin failed'));
    const error = { reason: 'Credentials', serverMessage: 'the plugin failed' };
    await assert.rejects(connect({ to: { credentials } }).create(volumes, undefined, {}), error);
    assert.equal(server.seen.length, 0);
  });
});

describe('a right that the account lacks', () => {
  it('is named once in the log, with the rule that grants it', async () => {
    const lines: string[] = [];
    const write = (line: string) => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    const client = connect({ log });
    server.handler = (_, reply) =>
      reply.status(403, 'Forbidden', 'User "u" cannot get resource "secrets" in API group ""');
    for (const name of ['a', 'b'])
      await assert.rejects(client.get(secrets, { namespace: 'ns', name }), { code: 403 });
    assert.equal(lines.length, 1);
    assert.ok(lines[0]?.includes("{ apiGroups: [''], resources: [secrets], verbs: [get] }"));
  });
});

describe('metrics', () => {
  it('count each request by verb, resource and code, with retries', async () => {
    const metrics = new Registry();
    const { clock } = noteSleeps();
    const client = connect({ metrics, clock });
    await client.get(volumes, volume);
    server.handler = inTurn(busy(429, {}), ok);
    const patch = { type: 'merge', body: {}, subresource: 'status' } as const;
    await client.patch(claims, { namespace: 'ns', name: 'x' }, patch);
    server.handler = reset;
    await assert.rejects(client.delete(volumes, volume));
    const text = await metrics.metrics();
    for (const line of [
      'requests_total{verb="get",resource="persistentvolumes",code="200"} 1',
      'requests_total{verb="patch",resource="persistentvolumeclaims/status",code="429"} 1',
      'requests_total{verb="patch",resource="persistentvolumeclaims/status",code="200"} 1',
      'requests_total{verb="delete",resource="persistentvolumes",code="0"} 1',
      'request_duration_seconds_count{verb="get",resource="persistentvolumes"} 1',
      'in_flight 0',
    ])
      assert.ok(text.includes(`sutler_kube_${line}`), `${line}\nnot in\n${text}`);
  });
});

describe('watch', () => {
  it('does not count as a call under way', async () => {
    const { watches } = open();
    const client = connect({ maxInFlight: 1 });
    const abort = new AbortController();
    const aborted = { name: 'KubeError', reason: 'Aborted' };
    const ends = [1, 2, 3].map(() =>
      assert.rejects(client.watch(claims, { ...nothing, signal: abort.signal }), aborted),
    );
    await until(() => watches.length === 3, 'three are open');
    server.handler = ok;
    await client.get(volumes, volume);
    abort.abort();
    await Promise.all(ends);
    await until(() => watches.every((watch) => watch.isClosed), 'the connections are gone');
  });
});
