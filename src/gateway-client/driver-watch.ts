import { readControllerCapabilities, readPluginCapabilities } from '../csi/capabilities.ts';
import type { CsiCalls } from '../csi/csi-calls.ts';
import { type Clock, unlessAborted } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { Listeners } from '../runtime/listeners.ts';
import { Outage } from '../runtime/outage.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { GatewayPool } from './pool.ts';

/** What the driver reports about itself. */
export interface DriverInfo {
  readonly name: string;
  readonly pluginCapabilities: ReadonlySet<string>;
  readonly controllerCapabilities: ReadonlySet<string>;
}

export interface DriverWatchOptions {
  /** Asked in order until one answers. That one is then asked first. */
  readonly gateways: GatewayPool;
  /** The driver that must answer; '': the first one that answers. */
  readonly name: string;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

const RETRY_MS = 100;
/** Capabilities change when the driver is upgraded. */
const REFRESH_MS = 15_000;

/** Asks the driver for its name and capabilities until it responds, then again every 15 s. */
export class DriverWatch {
  readonly #options: DriverWatchOptions;
  readonly #loop: PollLoop;
  readonly #first: Promise<DriverInfo>;
  #resolveFirst: (info: DriverInfo) => void = () => undefined;
  #current: DriverInfo | undefined;
  #trouble: string | undefined;
  readonly #changes = new Listeners<void>();
  readonly #outage: Outage;

  constructor(options: DriverWatchOptions) {
    this.#options = options;
    this.#outage = new Outage(options.log);
    const addresses = options.gateways.inOrder().map(({ address }) => address);
    this.#trouble =
      addresses.length === 0
        ? options.gateways.whyNone
        : `waiting for the driver at ${addresses.join(', ')}`;
    this.#first = new Promise((resolve) => (this.#resolveFirst = resolve));
    this.#loop = new PollLoop({
      step: () => this.#poll(),
      onError: (err) => options.log.error({ err }, 'could not ask the driver for its name'),
      periodMs: RETRY_MS,
      clock: options.clock,
    });
  }

  /** For /readyz: why the driver's report is missing or outdated. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Resolves when the driver has reported its name and capabilities. If the signal aborts first,
   * resolves with undefined. */
  waitUntilKnown(signal: AbortSignal): Promise<DriverInfo | undefined> {
    return unlessAborted(this.#first, signal);
  }

  /** The latest report.
   * @throws Error before waitUntilKnown() has resolved */
  current(): DriverInfo {
    if (this.#current === undefined)
      throw new Error('the driver is not known yet: await waitUntilKnown() first');
    return this.#current;
  }

  /** Calls the listener whenever the driver has gone away or come back.
   * @returns a function that ends the subscription */
  onChange(listener: () => void): () => void {
    return this.#changes.subscribe(listener);
  }

  /** Asks the driver now. */
  askNow(): void {
    this.#loop.runNow();
  }

  close(): void {
    this.#outage.forget();
    void this.#loop.stop();
  }

  /** @returns the pause before the next question, in ms */
  async #poll(): Promise<number> {
    const answer = await askGateways(this.#options, this.#current?.name ?? this.#options.name);
    if (typeof answer === 'string') {
      this.#outage.met(answer, { reason: answer }, 'the driver does not answer; waiting');
      this.#setTrouble(answer);
      return RETRY_MS;
    }
    const { name, controllerCapabilities } = answer;
    const isFirst = this.#current === undefined;
    const facts = { driver: name, capabilities: [...controllerCapabilities] };
    this.#outage.ended(facts, 'the driver answers', isFirst);
    this.#current = answer;
    this.#setTrouble(undefined);
    this.#resolveFirst(answer);
    return REFRESH_MS;
  }

  #setTrouble(trouble: string | undefined): void {
    const hasChanged = (trouble === undefined) !== (this.#trouble === undefined);
    this.#trouble = trouble;
    if (hasChanged) this.#changes.notify();
  }
}

/** Returns the report of the first gateway that answers, or why none did.
 * @param served  name of the driver that this process serves; '' if it is not known yet */
async function askGateways(
  { gateways, timeoutMs }: DriverWatchOptions,
  served: string,
): Promise<DriverInfo | string> {
  const troubles: string[] = [];
  for (const { address, client } of gateways.inOrder()) {
    try {
      const info = await readDriverInfo(client, timeoutMs);
      if (served !== '' && info.name !== served)
        throw new Error(
          `its driver is ${info.name}, but this process serves ${served}; ` +
            'name the right gateway or Service',
        );
      gateways.prefer(address);
      return info;
    } catch (error) {
      troubles.push(`${address}: ${messageOf(error)}`);
    }
  }
  return troubles.length === 0 ? gateways.whyNone : troubles.join('; ');
}

/** @throws Error for a failed call or an empty name */
async function readDriverInfo(client: CsiCalls, timeoutMs: number): Promise<DriverInfo> {
  const settings = { timeoutMs };
  const { name } = await client.getPluginInfo(settings);
  if (name === '')
    throw new Error('driver name is empty: GetPluginInfo must return the CSI driver’s name');
  const plugin = readPluginCapabilities(await client.getPluginCapabilities(settings));
  const controller = plugin.has('CONTROLLER_SERVICE')
    ? readControllerCapabilities(await client.controllerGetCapabilities(settings))
    : new Set<string>();
  return { name, pluginCapabilities: plugin, controllerCapabilities: controller };
}
