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
import { startKubeServer, type OpenWatch, type Seen } from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const directory = mkdtempSync(join(tmpdir(), 'sutler-transport-'));
const authority = createAuthority(directory, 'ca');
const stranger = createAuthority(directory, 'stranger');
const serverPair = authority.server('api.example');
const alice = authority.client('alice');
const ALICE = { peer: 'alice' };
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
/** A transport whose next request has the TLS material `tls`. */
function open(o: { readonly tls?: TlsMaterial; readonly url?: string } = {}) {
  const transport = new Transport({ server: new URL(o.url ?? server.url) }, 4);
  transports.push(transport);
  const get = { title: 'get x', method: 'GET', path: '/x', headers: {} } as const;
  return {
    tls: o.tls ?? material(),
    call(request: Partial<WireRequest> = {}) {
      return transport.exchange({ ...get, tls: this.tls, ...request }, { timeoutMs: 5000 });
    },
    watch(onBody: WatchHandler['onBody']) {
      const watch = { onOpen: () => {}, onBody };
      const request = { ...get, tls: this.tls, path: '/watch' };
      return transport.exchange(request, { timeoutMs: 5000, watch });
    },
  };
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
    assert.deepEqual(await call(open()), ALICE);
  });

  it('verifies the given server name', async () => {
    assert.deepEqual(await call(open({ tls: material({ servername: 'api.example' }) })), ALICE);
    await fails(
      open({ tls: material({ servername: 'other.example' }) }),
      /other\.example.*altnames.*: correct server or tls-server-name in the kubeconfig, or --master$/,
    );
  });

  it('refuses a server of another authority, unless verification is skipped', async () => {
    await fails(
      open({ tls: material({ ca: stranger.ca }) }),
      /certificate.*: correct certificate-authority in the kubeconfig, or ca\.crt of the pod$/,
    );
    const tls = material({ ca: undefined, skipVerify: true });
    assert.deepEqual(await call(open({ tls })), ALICE);
  });

  it('says what to do where the server speaks no TLS', async () => {
    const plain = await startKubeServer((_, reply) => reply.json(200, {}));
    closers.push(() => plain.close());
    await fails(
      open({ url: plain.url.replace('http:', 'https:') }),
      /^get x: TLS failed \(wrong version number\): check that the API server is at this address/,
    );
  });

  it('uses a new certificate for the next call; calls and watches under way go on', async () => {
    const transport = open();
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

    transport.tls = material(bob);
    assert.deepEqual(await call(transport), { peer: 'bob' });
    kept.answer?.();
    assert.deepEqual(await underWay, ALICE);
    kept.watch?.write('still here');
    kept.watch?.end();
    assert.equal((await watching).code, 200);
    assert.deepEqual(received, ['still here']);
  });
});

describe('Transport', () => {
  it('reuses the connection after a DELETE with a body', async () => {
    const counted = await startKubeServer((_, reply) => reply.json(200, {}));
    closers.push(() => counted.close());
    const transport = open({ url: counted.url });
    for (let round = 0; round < 20; round++) await transport.call({ method: 'DELETE', body: '{}' });
    // The pool may open a second connection just before the first one is free.
    assert.ok(counted.connections <= 2, String(counted.connections));
  });
});
