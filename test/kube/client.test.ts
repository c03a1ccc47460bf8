import assert from 'node:assert/strict';
import { after, beforeEach, describe, it } from 'node:test';
import { Registry } from 'prom-client';
import { createKubeClient, type KubeClient, type WatchOptions } from '#src/kube/client.ts';
import {
  type ClusterAccess,
  type CredentialSource,
  NO_CREDENTIALS,
  renewCredentials,
} from '#src/kube/credentials.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Volume } from '#src/kube/objects.ts';
import type { RequestSenderOptions } from '#src/kube/request-sender.ts';
import { claims, leases, secrets, volumes } from '#src/kube/resources.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import {
  type Handler,
  type KubeServer,
  type OpenWatch,
  plainAccess,
  startKubeServer,
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

/** Credentials whose parts change only with the token. */
function bearer(token: () => string): ClusterAccess['credentials'] {
  let current = NO_CREDENTIALS;
  return () => {
    const authorization = `Bearer ${token()}`;
    if (current.headers['authorization'] !== authorization)
      current = { ...current, headers: { authorization } };
    return Promise.resolve(current);
  };
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
const kubeError =
  (check: (error: KubeError) => void) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof KubeError, String(error));
    check(error);
    return true;
  };

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
  it('reads one object with the given user agent and credentials', async () => {
    const client = connect({ to: { credentials: bearer(() => 't') } });
    const volume = await client.get<Volume>(volumes, { name: 'pv 1' });
    assert.equal(volume?.metadata.name, 'x');
    const [seen] = server.seen;
    assert.deepEqual(
      [seen?.method, seen?.path, seen?.headers['user-agent'], seen?.headers.authorization],
      ['GET', '/api/v1/persistentvolumes/pv%201', 'sutler-test/1', 'Bearer t'],
    );
  });

  it('prefixes paths with the path of the server', async () => {
    const client = connect({ to: { server: new URL(`${server.url}/k8s/clusters/c-1/`) } });
    await client.get(claims, { namespace: 'ns', name: 'c' });
    assert.equal(
      server.seen[0]?.path,
      '/k8s/clusters/c-1/api/v1/namespaces/ns/persistentvolumeclaims/c',
    );
  });

  it('asks for whole objects, or in a list and a watch for the metadata alone', async () => {
    const client = connect();
    const acceptOf = () => server.seen.at(-1)?.headers.accept;
    await client.get(volumes, { name: 'x' });
    assert.equal(acceptOf(), 'application/json');
    await client.list(volumes);
    assert.equal(acceptOf(), 'application/json');
    await client.list(volumes, { metadataOnly: true });
    assert.equal(
      acceptOf(),
      'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json',
    );
    const { watches } = open();
    const watching = client.watch(volumes, {
      ...nothing,
      metadataOnly: true,
    });
    await until(() => watches.length === 1, 'the watch is open');
    assert.equal(
      acceptOf(),
      'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json',
    );
    watches[0]?.end();
    await watching;
  });

  it('returns undefined for an object that does not exist', async () => {
    server.handler = (_, reply) => reply.status(404, 'NotFound', 'persistentvolumes "x" not found');
    const client = connect();
    assert.equal(await client.get(volumes, { name: 'x' }), undefined);
    assert.equal(await client.delete(volumes, { name: 'x' }), undefined);
    await assert.rejects(client.patch(volumes, { name: 'x' }, { type: 'merge', body: {} }), {
      name: 'KubeError',
      code: 404,
    });
  });

  it('throws for a 404 that says nothing about the object', async () => {
    const client = connect();
    server.handler = (_, reply) => reply.text(404, '404 page not found');
    await assert.rejects(client.get(volumes, { name: 'x' }), {
      name: 'KubeError',
      reason: 'Not Found',
    });
    server.handler = (_, reply) =>
      reply.json(404, {
        kind: 'Status',
        code: 404,
        reason: 'NotFound',
        message: 'namespaces "ns" not found',
        details: { name: 'ns', kind: 'namespaces' },
      });
    await assert.rejects(client.get(claims, { namespace: 'ns', name: 'c' }), {
      name: 'KubeError',
      serverMessage: 'namespaces "ns" not found',
    });
  });

  it('writes with the method, body and content type of each verb', async () => {
    const client = connect();
    await client.create(volumes, undefined, { a: 'ä' });
    await client.update(leases, { namespace: 'ns', name: 'l' }, { b: 1 });
    await client.patch(volumes, { name: 'x' }, { type: 'merge', body: { m: null } });
    await client.patch(
      claims,
      { namespace: 'ns', name: 'x' },
      { type: 'strategic', body: {}, subresource: 'status' },
    );
    assert.deepEqual(
      server.seen.map((seen) => [seen.method, seen.path, seen.headers['content-type'], seen.body]),
      [
        ['POST', '/api/v1/persistentvolumes', 'application/json', '{"a":"ä"}'],
        [
          'PUT',
          '/apis/coordination.k8s.io/v1/namespaces/ns/leases/l',
          'application/json',
          '{"b":1}',
        ],
        ['PATCH', '/api/v1/persistentvolumes/x', 'application/merge-patch+json', '{"m":null}'],
        [
          'PATCH',
          '/api/v1/namespaces/ns/persistentvolumeclaims/x/status',
          'application/strategic-merge-patch+json',
          '{}',
        ],
      ],
    );
  });

  it('sends the body of a DELETE with its length, else preconditions would be ignored', async () => {
    const client = connect();
    await client.delete(
      volumes,
      { name: 'x' },
      { preconditions: { uid: 'u-ü', resourceVersion: '5' } },
    );
    const [seen] = server.seen;
    assert.equal(seen?.headers['content-length'], String(Buffer.byteLength(seen?.body ?? '')));
    assert.equal(seen?.headers['transfer-encoding'], undefined);
    assert.deepEqual(JSON.parse(seen?.body ?? ''), {
      apiVersion: 'v1',
      kind: 'DeleteOptions',
      preconditions: { uid: 'u-ü', resourceVersion: '5' },
    });
    await client.delete(volumes, { name: 'x' });
    assert.equal(server.seen[1]?.body, '');
  });

  it('lists page by page', async () => {
    server.handler = (seen, reply) =>
      seen.query.get('continue') === null
        ? reply.json(200, {
            metadata: { resourceVersion: '9', continue: 'more' },
            items: [{ a: 1 }, { a: 2 }],
          })
        : reply.json(200, { metadata: { resourceVersion: '9' }, items: null });
    const client = connect();
    assert.deepEqual(
      await client.list(claims, {
        namespace: 'ns',
        limit: 2,
        labelSelector: 'a=b',
        fieldSelector: 'c=d',
      }),
      {
        items: [{ a: 1 }, { a: 2 }],
        resourceVersion: '9',
        continueToken: 'more',
      },
    );
    assert.deepEqual(await client.list(claims, { continueToken: 'more' }), {
      items: [],
      resourceVersion: '9',
    });
    assert.deepEqual(Object.fromEntries(server.seen[0]?.query ?? []), {
      limit: '2',
      labelSelector: 'a=b',
      fieldSelector: 'c=d',
    });
  });

  it('says so when an answer is not JSON', async () => {
    server.handler = (_, reply) => reply.text(200, '<html>login</html>');
    await assert.rejects(connect().get(volumes, { name: 'x' }), {
      name: 'KubeError',
      message: /get persistentvolumes x: the answer is not JSON: <html>login/,
    });
  });

  it('has no more requests under way than maxInFlight', async () => {
    let underWay = 0;
    let most = 0;
    server.handler = async (_, reply) => {
      most = Math.max(most, ++underWay);
      await new Promise((resolve) => setTimeout(resolve, 3));
      underWay--;
      reply.json(200, {});
    };
    const client = connect({ maxInFlight: 4 });
    await Promise.all(Array.from({ length: 40 }, () => client.get(volumes, { name: 'x' })));
    assert.equal(most, 4);
  });

  it('reads answers of any size and with any characters', async () => {
    const text = '🚀ü'.repeat(400_000);
    server.handler = (_, reply) => reply.json(200, { text });
    assert.deepEqual(await connect().get(volumes, { name: 'x' }), { text });
  });
});

describe('secrets', () => {
  it('are not repeated in the error about a broken answer', async () => {
    server.handler = (_, reply) => reply.text(200, '{"password":aHVudGVyMg==}');
    await assert.rejects(
      connect().get(secrets, { namespace: 'ns', name: 's' }),
      kubeError((error) => {
        assert.match(error.message, /not JSON: 25 characters of broken JSON/);
        assert.equal(`${error.stack} ${String(error.cause)}`.includes('aHVudGVyMg'), false);
      }),
    );
  });
});

describe('retries', () => {
  for (const code of [429, 500, 503, 504]) {
    it(`waits for the Retry-After of a ${code}, then retries, also writes`, async () => {
      server.handler = inTurn(
        busy(code, { 'retry-after': '2' }),
        busy(code, { 'retry-after': '1' }),
        ok,
      );
      const { clock, sleptMs } = noteSleeps();
      await connect({ clock }).create(volumes, undefined, {});
      assert.equal(server.seen.length, 3);
      assert.equal(sleptMs.length, 2);
      assert.ok((sleptMs[0] ?? 0) >= 2000 && (sleptMs[0] ?? 0) <= 3000, String(sleptMs));
      assert.ok((sleptMs[1] ?? 0) >= 1000 && (sleptMs[1] ?? 0) <= 1500, String(sleptMs));
    });
  }

  it('waits one second after a 429 without Retry-After', async () => {
    server.handler = inTurn((_, reply) => reply.text(429, 'Too many requests'), ok);
    const { clock, sleptMs } = noteSleeps();
    await connect({ clock }).get(volumes, { name: 'x' });
    assert.ok((sleptMs[0] ?? 0) >= 1000, String(sleptMs));
  });

  it('does not retry after a 500 without Retry-After', async () => {
    server.handler = busy(500, {});
    await assert.rejects(connect().get(volumes, { name: 'x' }), { name: 'KubeError', code: 500 });
    assert.equal(server.seen.length, 1);
  });

  it("fails after seven attempts with the server's message", async () => {
    server.handler = busy(429, { 'retry-after': '1' });
    const { clock } = noteSleeps();
    await assert.rejects(connect({ clock }).get(volumes, { name: 'x' }), {
      name: 'KubeError',
      serverMessage: 'slow down',
      retryAfterMs: 1000,
    });
    assert.equal(server.seen.length, 7);
  });

  it("does not wait beyond the call's own time", async () => {
    server.handler = busy(429, { 'retry-after': '30' });
    const { clock, sleptMs } = noteSleeps();
    await assert.rejects(connect({ clock }).get(volumes, { name: 'x' }, { timeoutMs: 2000 }), {
      name: 'KubeError',
      code: 429,
    });
    assert.deepEqual([sleptMs, server.seen.length], [[], 1]);
  });
});

describe('a rate of requests', () => {
  const startMs = performance.now();
  const volume = { name: 'x' };

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
    await assert.rejects(client.get(volumes, volume), {
      name: 'KubeError',
      reason: 'Timeout',
    });
    assert.equal(server.seen.length, 1);
  });
});

describe('faults', () => {
  it('retries a read whose connection broke', async () => {
    server.handler = inTurn(reset, (seen) => void seen.raw.socket.destroy(), ok);
    assert.notEqual(await connect().get(volumes, { name: 'x' }), undefined);
    assert.equal(server.seen.length, 3);
  });

  it('does not retry a write that may have been sent', async () => {
    server.handler = reset;
    await assert.rejects(connect().create(volumes, undefined, {}), {
      name: 'KubeError',
      code: 0,
      reason: 'Network',
    });
    assert.equal(server.seen.length, 1);
  });

  it('retries a write that was not sent', async () => {
    const gone = await startKubeServer(ok);
    const { url } = gone;
    await gone.close();
    const { clock, sleptMs } = noteSleeps();
    await assert.rejects(
      connect({ clock, to: { server: new URL(url) } }).create(volumes, undefined, {}),
      kubeError((error) => {
        assert.deepEqual([error.code, error.reason], [0, 'Unreachable']);
        assert.match(error.message, /create persistentvolumes: .*ECONNREFUSED/);
      }),
    );
    assert.equal(sleptMs.length, 6);
  });

  it('ends a call whose answer does not come in time, headers or body', async () => {
    const client = connect();
    server.handler = () => {};
    await assert.rejects(client.get(volumes, { name: 'x' }, { timeoutMs: 30 }), {
      name: 'KubeError',
      code: 0,
      reason: 'Timeout',
    });
    server.handler = (_, reply) =>
      void reply.response.writeHead(200, { 'content-length': '100' }).write('{');
    await assert.rejects(client.get(volumes, { name: 'x' }, { timeoutMs: 30 }), {
      name: 'KubeError',
      reason: 'Timeout',
    });
    server.handler = ok;
    await client.get(volumes, { name: 'x' });
  });

  it('aborts a call at once, before and while it is under way', async () => {
    server.handler = () => {};
    const client = connect();
    await assert.rejects(client.get(volumes, { name: 'x' }, { signal: AbortSignal.abort() }), {
      name: 'KubeError',
      reason: 'Aborted',
    });
    assert.equal(server.seen.length, 0);
    const abort = new AbortController();
    const call = client.create(volumes, undefined, {}, { signal: abort.signal });
    await until(() => server.seen.length === 1, 'the request arrived');
    abort.abort();
    await assert.rejects(call, { name: 'KubeError', reason: 'Aborted' });
  });

  it('does not send a request that was aborted while it waited for a connection', async () => {
    const client = connect({ maxInFlight: 1 });
    server.handler = () => {};
    const first = new AbortController();
    const second = new AbortController();
    const calls = [
      client.get(volumes, { name: 'first' }, { signal: first.signal }),
      client.create(volumes, undefined, {}, { signal: second.signal }),
    ];
    await until(() => server.seen.length === 1, 'the first arrived');
    second.abort();
    await assert.rejects(calls[1] ?? Promise.resolve(), { name: 'KubeError', reason: 'Aborted' });
    first.abort();
    await assert.rejects(calls[0] ?? Promise.resolve());
    server.handler = ok;
    await client.get(volumes, { name: 'last' });
    assert.deepEqual(
      server.seen.map((seen) => seen.path.split('/').at(-1)),
      ['first', 'last'],
    );
  });

  it('refuses calls after close, and ends those under way', async () => {
    server.handler = (_, reply) => void setTimeout(() => reply.json(200, {}), 20);
    const client = connect();
    const underWay = client.get(volumes, { name: 'x' });
    await until(() => server.seen.length === 1, 'the request arrived');
    await client.close();
    assert.deepEqual(await underWay, {}, 'a call under way may finish');
    await assert.rejects(client.create(volumes, undefined, {}, { timeoutMs: 100 }), {
      name: 'KubeError',
      code: 0,
      reason: 'Aborted',
    });
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
    await assert.rejects(
      connect({ to: { credentials: bearer(() => 'old') } }).get(volumes, {
        name: 'x',
      }),
      { name: 'KubeError', code: 401 },
    );
    assert.equal(server.seen.length, 2);
  });

  it('that are renewed after a 401 give the call no more time than it has', async () => {
    const startMs = performance.now();
    server.handler = (seen, reply) => {
      if (server.seen.length === 1) setTimeout(() => void locked(seen, reply), 1_000);
    };
    const client = connect({ to: { credentials: bearer(() => 'old') } });
    const call = client.get(volumes, { name: 'x' }, { timeoutMs: 1_500 });
    await assert.rejects(call, { name: 'KubeError', reason: 'Timeout' });
    assert.equal(server.seen.length, 2);
    assert.ok(performance.now() - startMs < 2_400);
  });

  it('that can not be read make the call fail unsent', async () => {
    const client = connect({
      to: { credentials: () => Promise.reject(new Error('the plugin failed')) },
    });
    await assert.rejects(client.create(volumes, undefined, {}), {
      name: 'KubeError',
      reason: 'Credentials',
      serverMessage: 'the plugin failed',
    });
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
    await client.get(volumes, { name: 'x' });
    await client.create(volumes, undefined, {});
    server.handler = inTurn((_, reply) => reply.status(429, 'TooManyRequests', 'slow down'), ok);
    await client.patch(
      claims,
      { namespace: 'ns', name: 'x' },
      { type: 'merge', body: {}, subresource: 'status' },
    );
    server.handler = reset;
    await assert.rejects(client.delete(volumes, { name: 'x' }));
    const text = await metrics.metrics();
    for (const line of [
      'sutler_kube_requests_total{verb="get",resource="persistentvolumes",code="200"} 1',
      'sutler_kube_requests_total{verb="create",resource="persistentvolumes",code="200"} 1',
      'sutler_kube_requests_total{verb="patch",resource="persistentvolumeclaims/status",code="429"} 1',
      'sutler_kube_requests_total{verb="patch",resource="persistentvolumeclaims/status",code="200"} 1',
      'sutler_kube_requests_total{verb="delete",resource="persistentvolumes",code="0"} 1',
      'sutler_kube_request_duration_seconds_count{verb="get",resource="persistentvolumes"} 1',
      'sutler_kube_in_flight 0',
    ]) {
      assert.ok(text.includes(line), `${line}\nnot in\n${text}`);
    }
  });
});

describe('watch', () => {
  it('asks for exactly what the options say', async () => {
    const { watches } = open();
    const asked = async (o: Partial<WatchOptions>) => {
      const watching = connect().watch(claims, { ...nothing, ...o });
      await until(() => watches.length === 1, 'it is open');
      watches.shift()?.end();
      await watching;
      return Object.fromEntries(server.seen.at(-1)?.query ?? []);
    };
    const asksAlways = {
      watch: 'true',
      resourceVersion: '1',
      allowWatchBookmarks: 'true',
      timeoutSeconds: '300',
    };
    assert.deepEqual(await asked({}), asksAlways);
    const selectors = { labelSelector: 'a=b', fieldSelector: 'c=d' };
    assert.deepEqual(await asked(selectors), { ...asksAlways, ...selectors });
  });

  it('does not count as a call under way', async () => {
    const { watches } = open();
    const client = connect({ maxInFlight: 1 });
    const abort = new AbortController();
    const watching = [1, 2, 3].map(() =>
      client.watch(claims, { ...nothing, signal: abort.signal }),
    );
    await until(() => watches.length === 3, 'three are open');
    server.handler = ok;
    await client.get(volumes, { name: 'x' });
    abort.abort();
    const ends = await Promise.allSettled(watching);
    assert.deepEqual(
      ends.map(
        (end) => end.status === 'rejected' && end.reason instanceof KubeError && end.reason.reason,
      ),
      ['Aborted', 'Aborted', 'Aborted'],
    );
    await until(() => watches.every((watch) => watch.isClosed), 'the connections are gone');
  });

  it('fails when nothing is received for the given time, and only then', async () => {
    const { watches } = open();
    const startMs = performance.now();
    const watching = connect().watch(claims, { ...nothing, idleTimeoutMs: 400 });
    await until(() => watches.length === 1, 'it is open');
    for (let i = 0; i < 4; i++) {
      await new Promise((resolve) => setTimeout(resolve, 125));
      watches[0]?.send('BOOKMARK', {});
    }
    await assert.rejects(watching, { name: 'KubeError', reason: 'Timeout' });
    assert.ok(performance.now() - startMs >= 850);
  });

  it('has its credentials read again once after a 401', async () => {
    server.handler = (seen, reply) =>
      seen.headers.authorization === 'Bearer new'
        ? reply.watch().end()
        : reply.status(401, 'Unauthorized', 'no');
    const credentials: CredentialSource = (refused) => {
      const authorization = `Bearer ${refused === undefined ? 'old' : 'new'}`;
      return Promise.resolve({ ...NO_CREDENTIALS, headers: { authorization } });
    };
    await connect({ to: { credentials } }).watch(claims, nothing);
    assert.equal(server.seen.length, 2);
  });

  it('rejects when the connection drops', async () => {
    const { watches } = open();
    const watching = connect().watch(claims, nothing);
    await until(() => watches.length === 1, 'it is open');
    watches[0]?.drop();
    await assert.rejects(
      watching,
      kubeError((error) => assert.equal(error.reason, 'Network')),
    );
  });

  it('ends with the error that its handler throws', async () => {
    const { watches } = open();
    const thrown = new Error('handler broke');
    const watching = connect().watch(claims, {
      ...nothing,
      onEvent: () => {
        throw thrown;
      },
    });
    await until(() => watches.length === 1, 'it is open');
    watches[0]?.send('ADDED', {});
    await assert.rejects(watching, (error) => error === thrown);
    await until(() => watches[0]?.isClosed === true, 'the connection is gone');
  });
});
