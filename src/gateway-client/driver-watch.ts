import { setMaxListeners } from 'node:events';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { readControllerCapabilities, readPluginCapabilities } from '../csi/capabilities.ts';
import type { CsiClient } from './client.ts';
import type { GatewayPool } from './pool.ts';

/** A driver as seen through its gateway. */
export interface DriverInfo {
  readonly name: string;
  readonly pluginCapabilities: ReadonlySet<string>;
  readonly controllerCapabilities: ReadonlySet<string>;
}

export interface DriverWatch {
  /** Resolves when the driver has told its name and capabilities; undefined when the signal aborts
   * first. */
  known(signal: AbortSignal): Promise<DriverInfo | undefined>;
  /** The latest view.
   * @throws before known() has resolved */
  current(): DriverInfo;
  /** For /readyz: what keeps the driver from being known. */
  readonly trouble: string | undefined;
  close(): void;
}

export interface DriverWatchOptions {
  /** Asked in their order until one answers; that one is preferred from then on. */
  readonly gateways: Pick<GatewayPool, 'inOrder' | 'prefer'>;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

const RETRY_MS = 500;
/** Capabilities change with a driver's upgrade. */
const REFRESH_MS = 15_000;

/** Asks the driver, through its gateway, who it is and what it can do: until it answers, and again
 * every 15 s. */
export function watchDriver(options: DriverWatchOptions): DriverWatch {
  const { clock, log, gateways } = options;
  const closed = new AbortController();
  setMaxListeners(0, closed.signal);
  let view: DriverInfo | undefined;
  let trouble: string | undefined = `waiting for the driver behind the gateway ${gateways
    .inOrder()
    .map(({ address }) => address)
    .join(', ')}`;
  let announce: (view: DriverInfo) => void = () => undefined;
  const first = new Promise<DriverInfo>((resolve) => (announce = resolve));

  const loop = async (): Promise<void> => {
    while (!closed.signal.aborted) {
      const troubles: string[] = [];
      let seen: DriverInfo | undefined;
      for (const { address, client } of gateways.inOrder()) {
        try {
          const answer = await ask(client, options.timeoutMs);
          if (view !== undefined && answer.name !== view.name)
            throw new Error(otherDriver(answer.name, view.name));
          seen = answer;
          gateways.prefer(address);
          break;
        } catch (error) {
          troubles.push(
            `gateway ${address}: ${error instanceof Error ? error.message : String(error)}`,
          );
        }
      }
      if (seen === undefined) {
        const text = troubles.join('; ');
        if (text !== trouble)
          log.warn({ reason: text }, 'the driver does not answer through its gateway; waiting');
        trouble = text;
        await clock.sleep(RETRY_MS, closed.signal);
        continue;
      }
      if (view === undefined)
        log.info(
          { driver: seen.name, capabilities: [...seen.controllerCapabilities] },
          'driver found',
        );
      view = seen;
      trouble = undefined;
      announce(seen);
      await clock.sleep(REFRESH_MS, closed.signal);
    }
  };
  void loop();

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
      if (view === undefined) throw new Error('the driver is not known yet: await known() first');
      return view;
    },
    get trouble() {
      return trouble;
    },
    close: () => closed.abort(),
  };
}

function otherDriver(now: string, before: string): string {
  return `the driver behind it is now ${now}, this process serves ${before}; point --gateway at the right one or restart this process`;
}

async function ask(
  client: Pick<CsiClient, 'getPluginInfo' | 'getPluginCapabilities' | 'controllerGetCapabilities'>,
  timeoutMs: number,
): Promise<DriverInfo> {
  const settings = { timeoutMs };
  const info = await client.getPluginInfo(settings);
  if (info.name === '')
    throw new Error('driver name is empty: GetPluginInfo must answer with the CSI driver’s name');
  const plugin = readPluginCapabilities(await client.getPluginCapabilities(settings));
  const controller = plugin.has('CONTROLLER_SERVICE')
    ? readControllerCapabilities(await client.controllerGetCapabilities(settings))
    : new Set<string>();
  return { name: info.name, pluginCapabilities: plugin, controllerCapabilities: controller };
}
