// Asks the driver, through its gateways, for its name and capabilities. Builds on pool.ts.
import { setMaxListeners } from 'node:events';
import { readControllerCapabilities, readPluginCapabilities } from '../csi/capabilities.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { CsiClient } from './client.ts';
import type { GatewayPool } from './pool.ts';
import { messageOf } from '../runtime/error-message.ts';

/** What the driver reports about itself. */
export interface DriverInfo {
  readonly name: string;
  readonly pluginCapabilities: ReadonlySet<string>;
  readonly controllerCapabilities: ReadonlySet<string>;
}

export interface DriverWatch {
  /** Resolves when the driver has reported its name and capabilities; with undefined if the signal
   * aborts first. */
  known(signal: AbortSignal): Promise<DriverInfo | undefined>;
  /** The latest report.
   * @throws Error before known() has resolved */
  current(): DriverInfo;
  /** For /readyz: why the driver's report is missing or can't be refreshed. */
  readonly trouble: string | undefined;
  close(): void;
}

export interface DriverWatchOptions {
  /** Asked in their order until one responds, which is then asked first. */
  readonly gateways: Pick<GatewayPool, 'inOrder' | 'prefer'>;
  /** Time for each call. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

const RETRY_MS = 500;
/** Capabilities change when the driver is upgraded. */
const REFRESH_MS = 15_000;

/** Asks the driver for its name and capabilities until it responds, then again every 15 s. */
export function watchDriver(options: DriverWatchOptions): DriverWatch {
  const { clock, gateways, log } = options;
  const closed = new AbortController();
  setMaxListeners(0, closed.signal);
  const addresses = gateways.inOrder().map(({ address }) => address);
  let trouble: string | undefined =
    `waiting for the driver behind the gateway ${addresses.join(', ')}`;
  let current: DriverInfo | undefined;
  let resolveFirst: (info: DriverInfo) => void = () => undefined;
  const first = new Promise<DriverInfo>((resolve) => (resolveFirst = resolve));

  const accept = (info: DriverInfo): void => {
    const { name, controllerCapabilities } = info;
    if (current === undefined)
      log.info({ driver: name, capabilities: [...controllerCapabilities] }, 'driver found');
    current = info;
    trouble = undefined;
    resolveFirst(info);
  };
  const report = (reason: string): void => {
    if (reason !== trouble)
      log.warn({ reason }, 'the driver does not answer through its gateway; waiting');
    trouble = reason;
  };
  const poll = async (): Promise<void> => {
    while (!closed.signal.aborted) {
      const answer = await askGateways(options, current?.name);
      if (typeof answer === 'string') report(answer);
      else accept(answer);
      await clock.sleep(typeof answer === 'string' ? RETRY_MS : REFRESH_MS, closed.signal);
    }
  };
  void poll();

  return {
    known: (signal) =>
      Promise.race([
        first,
        new Promise<undefined>((resolve) => {
          if (signal.aborted) resolve(undefined);
          else signal.addEventListener('abort', () => resolve(undefined), { once: true });
        }),
      ]),
    current: () => {
      if (current === undefined)
        throw new Error('the driver is not known yet: await known() first');
      return current;
    },
    get trouble() {
      return trouble;
    },
    close: () => closed.abort(),
  };
}

/** The report of the first gateway that responds, or why none gave one.
 * @param served  name of the driver that this process serves, once it is known */
async function askGateways(
  { gateways, timeoutMs }: DriverWatchOptions,
  served: string | undefined,
): Promise<DriverInfo | string> {
  const troubles: string[] = [];
  for (const { address, client } of gateways.inOrder()) {
    try {
      const info = await readDriverInfo(client, timeoutMs);
      if (served !== undefined && info.name !== served)
        throw new Error(
          `the driver behind it is now ${info.name}, this process serves ${served}; ` +
            'point --gateway at the right one or restart this process',
        );
      gateways.prefer(address);
      return info;
    } catch (error) {
      troubles.push(`gateway ${address}: ${messageOf(error)}`);
    }
  }
  return troubles.join('; ');
}

/** @throws Error for a failed call or an empty name */
async function readDriverInfo(
  client: Pick<CsiClient, 'getPluginInfo' | 'getPluginCapabilities' | 'controllerGetCapabilities'>,
  timeoutMs: number,
): Promise<DriverInfo> {
  const settings = { timeoutMs };
  const { name } = await client.getPluginInfo(settings);
  if (name === '')
    throw new Error('driver name is empty: GetPluginInfo must answer with the CSI driver’s name');
  const plugin = readPluginCapabilities(await client.getPluginCapabilities(settings));
  const controller = plugin.has('CONTROLLER_SERVICE')
    ? readControllerCapabilities(await client.controllerGetCapabilities(settings))
    : new Set<string>();
  return { name, pluginCapabilities: plugin, controllerCapabilities: controller };
}
