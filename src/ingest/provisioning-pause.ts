import {
  drainOf,
  pauseVersion,
  PROVISIONING_PAUSE,
  type SeenLease,
} from '../election/lease-view.ts';
import { objectId } from '../queue/dependency-index.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';

const PAUSE_ID = objectId(PROVISIONING_PAUSE);
const DRAINED = 'drained: nothing new is begun until sutler drain --undo';

/** Tells the wait watch whether new work is allowed, for which keys wait after a change-over or
 * while sutler is drained, and whoever subscribes that another provisioner led before. */
export class ProvisioningPause {
  /** Notified when new work is allowed, as when this ingest begins to lead. */
  readonly allowed = new Listeners<void>();
  /** Notified when this ingest begins to lead after another provisioner. */
  readonly afterOther = new Listeners<void>();
  readonly #changes: Listeners<string>;
  readonly #log: Logger;
  #isAllowed: boolean | undefined;
  /** Another provisioner has led since this ingest did. */
  #hasOtherLed = false;

  /** @param changes  notified with the id in the wait list of what has changed */
  constructor(changes: Listeners<string>, log: Logger) {
    this.#changes = changes;
    this.#log = log;
  }

  /** Another provisioner has held the Lease before this ingest began to lead. */
  otherLed(): void {
    this.#hasOtherLed = true;
  }

  /** To be called every second with what the driver's Lease says. */
  learn(seen: SeenLease | undefined, isLeading: boolean): void {
    if (seen?.otherHolder !== undefined) this.#hasOtherLed = true;
    if (!isLeading) return;
    if (this.#hasOtherLed) this.afterOther.notify();
    this.#hasOtherLed = false;
    const isAllowed = drainOf(seen?.lease?.annotations) === undefined;
    if (isAllowed !== this.#isAllowed) this.#change(isAllowed);
  }

  #change(isAllowed: boolean): void {
    if (!isAllowed) this.#log.warn(DRAINED);
    else if (this.#isAllowed === false)
      this.#log.info('the drain has ended: new work is begun again');
    this.#isAllowed = isAllowed;
    this.#changes.notify(PAUSE_ID);
    if (isAllowed) this.allowed.notify();
  }

  /** For /readyz of the leader: says that sutler is drained, while it is. */
  get note(): string | undefined {
    return this.#isAllowed === false ? DRAINED : undefined;
  }

  /** This ingest does not lead any more. */
  forget(): void {
    this.#isAllowed = undefined;
  }

  /** Undefined: another object, or the Lease was not read in this term. */
  versionOf(object: string): string | undefined {
    if (object !== PAUSE_ID || this.#isAllowed === undefined) return undefined;
    return pauseVersion(!this.#isAllowed);
  }
}
