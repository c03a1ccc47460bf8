import { drainOf, type SeenLease } from '../election/lease-view.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';

const DRAINED = 'drained: nothing new is begun until sutler drain --undo';

/** Whether new work is allowed, for which keys wait after a change-over or while sutler is drained;
 * tells whoever subscribes when it is, and that another provisioner led before. */
export class ProvisioningPause {
  /** Notified when new work is allowed, as when this ingest begins to lead. */
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

  /** Another provisioner has held the Lease before this ingest began to lead. */
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
      this.#log.info('the drain has ended: new work is begun again');
    this.#isAllowed = isAllowed;
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

  /** False also while the Lease was not read in this term. */
  get isNewWorkAllowed(): boolean {
    return this.#isAllowed === true;
  }
}
