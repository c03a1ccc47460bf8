import {
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from '@bufbuild/protobuf';
import { CsiClient } from '#src/gateway-client/client.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { failureOf } from './csi-gateway.ts';

const SETTINGS = { timeoutMs: 10_000 };

/** The volume capability for a claim with volumeMode Block. */
export const blockCapability = {
  accessType: { case: 'block' as const, value: {} },
  accessMode: { mode: 1 as const },
};

/** A sample driver with a client that is connected to its socket. */
export interface DriverUnderTest {
  readonly driver: SampleDriver;
  /** Path of a file in the driver's folder; its volumes are in `data`. */
  file(name: string): string;
  ask<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>>;
  /** The error of a call that fails, such as "NotFound: there is no volume x". */
  refusal<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<string>;
  /** Stops the driver and starts another one on the same data. */
  restart(): Promise<void>;
  close(): Promise<void>;
}

export async function openDriver(
  options: Partial<SampleDriverOptions> = {},
): Promise<DriverUnderTest> {
  const folder = await makeFolder();
  const socket = folder.file('csi.sock');
  const start = async (): Promise<{ driver: SampleDriver; client: CsiClient }> => ({
    driver: await startSampleDriver({ socket, dataDir: folder.file('data'), ...options }),
    client: new CsiClient({ address: { kind: 'unix', path: socket } }),
  });
  let running = await start();
  const stop = async (): Promise<void> => {
    running.client.close();
    await running.driver.close();
  };
  return {
    get driver() {
      return running.driver;
    },
    file: folder.file,
    ask: (method, request) => running.client.call(method, request, SETTINGS),
    refusal: async (method, request) => {
      const { codeName, details } = await failureOf(running.client.call(method, request, SETTINGS));
      return `${codeName}: ${details}`;
    },
    async restart() {
      await stop();
      running = await start();
    },
    async close() {
      await stop();
      await folder.remove();
    },
  };
}
