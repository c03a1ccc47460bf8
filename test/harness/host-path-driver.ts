import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Identity } from '#src/csi/generated/csi_pb.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { startProgram } from './program.ts';

/** A running csi-driver-host-path process. */
export interface HostPathDriver {
  readonly socket: string;
  readonly name: string;
  /** Folder that contains one folder per volume, named by its handle. */
  readonly volumes: string;
  /** Calls the driver directly. */
  readonly client: CsiClient;
  stop(): Promise<void>;
}

const READY_WITHIN_MS = 30_000;

export interface HostPathOptions {
  /** Path of hostpathplugin. */
  readonly program: string;
  /** For its socket and volumes. */
  readonly folder: string;
  readonly name: string;
  /** The driver has topology: NODE_KEY with this value. */
  readonly node?: string;
  /** Room by the value of a class's parameter `kind`, as quantities; then every class needs it. */
  readonly capacity?: Readonly<Record<string, string>>;
}

/** The driver's key of topology. */
export const NODE_KEY = 'topology.hostpath.csi/node';

export async function startHostPathDriver(options: HostPathOptions): Promise<HostPathDriver> {
  const { program, folder, name, node, capacity = {} } = options;
  const socket = join(folder, 'hostpath.sock');
  const volumes = join(folder, 'state');
  await mkdir(volumes, { recursive: true });
  const args = [
    `--endpoint=unix://${socket}`,
    `--drivername=${name}`,
    `--nodeid=${node ?? 'node-1'}`,
    `--statedir=${volumes}`,
    `--enable-topology=${node !== undefined}`,
    ...Object.entries(capacity).map(([kind, room]) => `--capacity=${kind}=${room}`),
  ];
  const running = startProgram(program, args, { cwd: folder, keptOutput: 8_000 });
  const client = new CsiClient({ address: { kind: 'unix', path: socket } });
  const driver: HostPathDriver = {
    socket,
    name,
    volumes,
    client,
    stop: async () => {
      client.close();
      await running.stop();
    },
  };
  const deadlineMs = Date.now() + READY_WITHIN_MS;
  for (;;) {
    try {
      await client.call(Identity.method.probe, {}, { timeoutMs: 1_000 });
      return driver;
    } catch (cause) {
      if (Date.now() > deadlineMs || running.hasEnded) {
        await driver.stop();
        throw new Error(`${program} is not ready; its last output:\n${running.output()}`, {
          cause,
        });
      }
      await delay(100);
    }
  }
}
