import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { TLSSocket } from 'node:tls';
import type { TlsMaterial } from '#src/kube/credentials.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { Transport, type WatchHandler, type WireRequest } from '#src/kube/transport.ts';
import { createAuthority } from '../harness/kube-certificates.ts';
import { startTunnelProxy } from '../harness/kube-proxy.ts';
import { startKubeServer, type OpenWatch, type Seen } from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const directory = mkdtempSync(join(tmpdir(), 'sutler-transport-'));
const authority = createAuthority(directory, 'ca');
const stranger = createAuthority(directory, 'stranger');
const serverPair = authority.server('api.example');
const alice = authority.client('alice');
const bob = authority.client('bob');

const server = await startKubeServer((seen, reply) => reply.json(200, { peer: peerOf(seen) }), {
  ...serverPair,
  ca: authority.ca,
  requestCert: true,
  rejectUnauthorized: false,
});
const transports: Transport[] = [];
const closers: (() => Promise<void>)[] = [() => server.close()];
after(async () => {
  await Promise.all(transports.map((transport) => transport.close()));
  await Promise.all(closers.map((close) => close()));
  rmSync(directory, { recursive: true });
});

function peerOf(seen: Seen): unknown {
  assert.ok(seen.raw.socket instanceof TLSSocket);
  return seen.raw.socket.getPeerCertificate().subject?.CN;
}

const material = (o: Partial<TlsMaterial> = {}): TlsMaterial => ({
  ca: authority.ca,
  cert: alice.cert,
  key: alice.key,
  servername: undefined,
  skipVerify: false,
  ...o,
});
/** A transport whose requests have the TLS material of the moment. */
function open(
  tls: () => TlsMaterial = constant(material()),
  on: { readonly url: string; readonly proxy?: URL } = server,
  connections = 4,
) {
  const transport = new Transport({ server: new URL(on.url), proxy: on.proxy }, connections);
  transports.push(transport);
  const complete = (request: Partial<WireRequest>): WireRequest => ({
    title: 'get x',
    method: 'GET',
    path: '/x',
    headers: {},
    tls: tls(),
    ...request,
  });
  return {
    call: (request: Partial<WireRequest> = {}, timeoutMs = 5000) =>
      transport.exchange(complete(request), { timeoutMs }),
    watch: (onBody: WatchHandler['onBody'] = () => {}) =>
      transport.exchange(complete({ path: '/watch' }), {
        timeoutMs: 5000,
        watch: { onOpen: () => {}, onBody },
      }),
    close: () => transport.close(),
  };
}
function constant<T>(value: T): () => T {
  return () => value;
}
const call = async (transport: ReturnType<typeof open>): Promise<unknown> =>
  JSON.parse((await transport.call()).body.toString('utf8'));
const fails = (transport: ReturnType<typeof open>, message: RegExp): Promise<void> =>
  assert.rejects(
    transport.call(),
    (error) =>
      error instanceof KubeError && error.reason === 'Network' && message.test(error.message),
  );

describe('Transport over TLS', () => {
  it('presents its client certificate and verifies the server by IP address', async () => {
    assert.deepEqual(await call(open()), { peer: 'alice' });
  });

  it('verifies the given server name', async () => {
    assert.deepEqual(await call(open(constant(material({ servername: 'api.example' })))), {
      peer: 'alice',
    });
    await fails(
      open(constant(material({ servername: 'other.example' }))),
      /other\.example.*altnames.*: correct server or tls-server-name in the kubeconfig, or --master$/,
    );
  });

  it('refuses a server of another authority, unless verification is skipped', async () => {
    await fails(
      open(constant(material({ ca: stranger.ca }))),
      /certificate.*: correct certificate-authority in the kubeconfig, or ca\.crt of the pod$/,
    );
    assert.deepEqual(await call(open(constant(material({ ca: undefined, skipVerify: true })))), {
      peer: 'alice',
    });
  });

  it('says what to do where the server speaks no TLS', async () => {
    const plain = await startKubeServer((_, reply) => reply.json(200, {}));
    closers.push(() => plain.close());
    const url = plain.url.replace('http:', 'https:');
    await fails(
      open(undefined, { url }),
      /^get x: TLS failed \(wrong version number\): check that the API server is at this address/,
    );
  });

  it('uses a new certificate for the next call; calls and watches under way go on', async () => {
    let tls = material();
    const transport = open(() => tls);
    const before = server.handler;
    const kept: { watch?: OpenWatch; answer?: () => void } = {};
    server.handler = (seen, reply) => {
      if (seen.path === '/watch') kept.watch = reply.watch();
      else kept.answer = () => reply.json(200, { peer: peerOf(seen) });
    };
    const received: string[] = [];
    const watching = transport.watch((chunk) => received.push(chunk.toString()));
    const underWay = call(transport);
    await until(() => kept.watch !== undefined && kept.answer !== undefined, 'both arrived');
    server.handler = before;

    tls = material(bob);
    assert.deepEqual(await call(transport), { peer: 'bob' });
    kept.answer?.();
    assert.deepEqual(await underWay, { peer: 'alice' });
    kept.watch?.write('still here');
    await until(() => received.length === 1, 'the watch still delivers');
    kept.watch?.end();
    assert.equal((await watching).code, 200);
  });

  it('accepts a server certificate of a new authority once the CA file has it', async () => {
    let tls = material();
    const transport = open(() => tls);
    await call(transport);
    const rotated = stranger.server();
    const https = await startKubeServer((_, reply) => reply.json(200, {}), rotated);
    closers.push(() => https.close());
    const moved = open(() => tls, https);
    await fails(moved, /certificate/i);
    tls = material({ ca: `${authority.ca}\n${stranger.ca}` });
    assert.deepEqual(await call(moved), {});
  });

  it('tunnels through a proxy, with verification end to end', async () => {
    const proxy = await startTunnelProxy();
    closers.push(() => proxy.close());
    const transport = open(constant(material()), { ...server, proxy: new URL(proxy.url) });
    assert.deepEqual(await call(transport), { peer: 'alice' });
    assert.deepEqual(await call(transport), { peer: 'alice' });
    assert.deepEqual(new Set(proxy.targets), new Set([new URL(server.url).host]));
    await fails(
      open(constant(material({ ca: stranger.ca })), { ...server, proxy: new URL(proxy.url) }),
      /certificate/i,
    );
  });
});

describe('Transport', () => {
  it('opens nothing until the first request', async () => {
    const quiet = await startKubeServer((_, reply) => reply.json(200, {}));
    closers.push(() => quiet.close());
    const transport = open(constant(material()), quiet);
    assert.equal(quiet.connections, 0);
    await call(transport);
    assert.equal(quiet.connections, 1);
  });

  it('reuses the connection after a DELETE with a body', async () => {
    const counted = await startKubeServer((_, reply) => reply.json(200, {}));
    closers.push(() => counted.close());
    const transport = open(constant(material()), counted);
    for (let round = 0; round < 20; round++) await transport.call({ method: 'DELETE', body: '{}' });
    // The pool may open a second connection just before the first one is free.
    assert.ok(counted.connections <= 2, String(counted.connections));
  });

  it('leaves no connection open after close', async () => {
    const busy = await startKubeServer(
      (seen, reply) => void (seen.path === '/watch' ? reply.watch() : reply.json(200, {})),
    );
    closers.push(() => busy.close());
    const transport = open(constant(material()), busy);
    await Promise.all(Array.from({ length: 8 }, () => call(transport)));
    const watching = transport.watch();
    await until(() => busy.seen.length === 9, 'the watch is open');
    await Promise.all([transport.close(), assert.rejects(watching)]);
    await until(() => busy.openSockets === 0, 'all connections are gone');
    await assert.rejects(transport.call({}, 100), { reason: 'Aborted' });
  });
});
