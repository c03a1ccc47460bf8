import assert from 'node:assert/strict';
import type { Gateway } from '#src/csi-gateway/server.ts';
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
  const { address } = started;
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
