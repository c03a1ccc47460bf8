import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import type { Gateway } from '#src/csi-gateway/server.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';

/** A driver with volumes and locks of its own, and its gateway on TCP. */
export interface Replica {
  readonly driver: SampleDriver;
  readonly gateway: Gateway;
  readonly port: number;
  /** Cuts its gateway off, so that nobody hears of a drain, and ends it. */
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
  const { address } = started;
  assert.ok(address.kind === 'tcp');
  const relay = await startRelay(address.port);
  let killed: Promise<void> | undefined;
  const kill = (): Promise<void> => {
    relay.cut();
    return (killed ??= started.close());
  };
  return {
    driver,
    gateway: started.gateway,
    port: relay.port,
    kill,
    async close() {
      await kill();
      await driver.close();
      await folder.remove();
    },
  };
}

/** Passes bytes on to a port of this machine until it is cut. */
async function startRelay(port: number) {
  const sockets = new Set<Socket>();
  const server = createServer((from) => {
    const to = connect(port, '127.0.0.1');
    for (const [socket, other] of [
      [from, to],
      [to, from],
    ] as const) {
      sockets.add(socket);
      socket.pipe(other);
      socket.on('error', () => other.destroy());
      socket.once('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const at = server.address();
  assert.ok(at !== null && typeof at === 'object');
  return {
    port: at.port,
    cut() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
