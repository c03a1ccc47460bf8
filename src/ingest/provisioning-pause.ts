import { drainOf, type SeenLease } from '../election/lease-view.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';

const DRAINED = 'drained: sutler begins no creation or deletion until sutler drain --undo';

/** Follows whether new work is allowed; keys wait for it during a change-over or a drain. Notifies
 * subscribers when it is allowed, and when another provisioner has led before. */
export class ProvisioningPause {
  /** Notified when new work is allowed, also when this ingest begins to lead. */
  readonly allowed = new Listeners<void>();
  /** Notified when this ingest begins to lead after another provisioner. */
  readonly afterOther = new Listeners<void>();
  readonly #log: Logger;
  #isAllowed: boolean | undefined;
  /** Another provisioner has led since this ingest did. */
  #hasOtherLed = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Notes that another provisioner held the Lease before this ingest began to lead. */
  otherLed(): void {
    this.#hasOtherLed = true;
  }

  /** To be called every second with what the driver's Lease says. */
  learn({ lease, otherHolder }: SeenLease, isLeading: boolean): void {
    if (otherHolder !== undefined) this.#hasOtherLed = true;
    if (!isLeading) return;
    if (this.#hasOtherLed) this.afterOther.notify();
    this.#hasOtherLed = false;
    const isAllowed = drainOf(lease?.annotations) === undefined;
    if (isAllowed !== this.#isAllowed) this.#change(isAllowed);
  }

  #change(isAllowed: boolean): void {
    if (!isAllowed) this.#log.warn(DRAINED);
    else if (this.#isAllowed === false)
      this.#log.info('the drain has ended: new work begins again');
    this.#isAllowed = isAllowed;
    if (isAllowed) this.allowed.notify();
  }

  /** For /readyz of the leader: says that sutler is drained, while it is. */
  get note(): string | undefined {
    return this.#isAllowed === false ? DRAINED : undefined;
  }

  /** To be called when this ingest stops leading. */
  forget(): void {
    this.#isAllowed = undefined;
  }

  /** Also false until this term's first read of the Lease. */
  get isNewWorkAllowed(): boolean {
    return this.#isAllowed === true;
  }
}
