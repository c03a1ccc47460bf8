import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { nodeAddress } from '#src/gateway-client/gateway-address.ts';
import { fixedNodeEndpoints } from '#src/gateway-client/endpoints.ts';
import { openNodeGatewayPool } from '#src/gateway-client/node-pool.ts';
import type { Address } from '#src/runtime/address.ts';
import { silentLog } from '#src/runtime/log.ts';
import { makeCertificates, tlsFilesOf, watchOwner } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { until } from '../harness/until.ts';

const GATEWAYS = 1_000;
const MIB = 1024 ** 2;
const IDLE_MS = 20_000;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

async function rss(): Promise<number> {
  for (let i = 0; i < 3; i += 1) {
    collectGarbage();
    await delay(200);
  }
  return process.memoryUsage().rss;
}

describe('calls to 1,000 gateways with mutual TLS', () => {
  it('leave at most 128 connections, cost under 60 MiB, and all are closed when they are idle', async (t) => {
    const folder = await makeFolder();
    await makeCertificates(folder.file('tls'), 'DNS:gateways.default.svc');
    const { ca, cert, key } = tlsFilesOf(folder.file('tls'), 'gateway');
    const program = new URL('../harness/capacity-server.js', import.meta.url).pathname;
    const server = fork(program, [ca, cert, key]);
    const [port] = (await once(server, 'message')) as [number];
    const addresses = new Map<string, Address>();
    for (let i = 0; i < GATEWAYS; i += 1) {
      const host = `127.0.${Math.floor(i / 250) + 1}.${(i % 250) + 1}`;
      addresses.set(`n${i}`, { kind: 'tcp', host, port });
    }
    const source = await watchOwner(folder.file('tls'), 'jobs');
    const pool = openNodeGatewayPool({
      endpoints: { ...fixedNodeEndpoints(addresses), serverName: 'gateways.default.svc' },
      security: { tls: { source, serverName: '' } },
      idleMs: IDLE_MS,
      log: silentLog,
    });
    try {
      const ask = (node: string): Promise<unknown> =>
        pool.calls.getCapacity({}, { gateway: nodeAddress(node), timeoutMs: 30_000 });
      const filesBefore = readdirSync('/proc/self/fd').length;
      const nodes = [...addresses.keys()];
      // What the first calls load, every worker has, whatever its number of gateways.
      await Promise.all(nodes.slice(0, 16).map(ask));
      const before = await rss();
      // Some at a time, as jobs asks nodes.
      for (let from = 0; from < nodes.length; from += 16)
        await Promise.all(nodes.slice(from, from + 16).map(ask));
      const sockets = (): number => readdirSync('/proc/self/fd').length - filesBefore;
      assert.equal(pool.connections, 128);
      await until(() => sockets() < 150, 'the sockets of all others are closed', IDLE_MS / 2);
      assert.ok(sockets() >= 128, `${sockets()} sockets`);
      const cost = (await rss()) - before;
      t.diagnostic(`${(cost / MIB).toFixed(1)} MiB with ${sockets()} sockets`);
      await until(() => pool.connections === 0, 'all clients are closed', 60_000);
      await until(() => sockets() < 5, 'all sockets are closed');
      t.diagnostic(`${(((await rss()) - before) / MIB).toFixed(1)} MiB when they are closed`);
      assert.ok(cost < 60 * MIB, `${(cost / MIB).toFixed(1)} MiB`);
    } finally {
      pool.close();
      source.close();
      server.kill();
      await folder.remove();
    }
  });
});
