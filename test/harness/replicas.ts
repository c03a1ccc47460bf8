import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import type { Gateway } from '#src/csi-gateway/gateway.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';

/** A driver with volumes and locks of its own, and its gateway on TCP. */
export interface Replica {
  readonly driver: SampleDriver;
  readonly gateway: Gateway;
  readonly port: number;
  /** Ends its gateway without a drain. */
  kill(): Promise<void>;
  close(): Promise<void>;
}

/** @param pod  UID of the pod that its gateway is in */
export async function startReplica(pod = ''): Promise<Replica> {
  const folder = await makeFolder();
  const driver = await startSampleDriver({
    socket: folder.file('csi.sock'),
    dataDir: folder.file('volumes'),
  });
  const started = await startTestGateway(folder, {
    listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
    probeTimeoutMs: 5_000,
    pod,
  });
  const { address } = started.gateway;
  assert.ok(address.kind === 'tcp');
  let killed: Promise<void> | undefined;
  const kill = (): Promise<void> => (killed ??= started.close());
  return {
    driver,
    gateway: started.gateway,
    port: address.port,
    kill,
    async close() {
      await kill();
      await driver.close();
      await folder.remove();
    },
  };
}

/** One address that leads each new connection to the next of several ports, as that of a Service
 * does. */
export interface Balancer {
  readonly port: number;
  /** Number of connections so far. */
  readonly connections: number;
  lead(ports: readonly number[]): void;
  close(): void;
}

export async function startBalancer(first: readonly number[]): Promise<Balancer> {
  let ports = first;
  let connections = 0;
  const sockets = new Set<Socket>();
  const server = createServer((caller) => {
    // Two in a row to each, so that each of two processes that connect in turn gets all of them.
    const index = Math.floor((connections += 1) / 2) % ports.length;
    const target = connect(ports[index] ?? 0, '127.0.0.1');
    for (const [from, to] of [
      [caller, target],
      [target, caller],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  return {
    port: address.port,
    get connections() {
      return connections;
    },
    lead: (next) => void (ports = next),
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
