import { objectId } from '../queue/dependency-index.ts';
import type { LeaderFacts } from '../records/data-epoch.ts';
import { pauseVersion, PROVISIONING_PAUSE } from '../records/provisioning-pause.ts';
import { Listeners } from '../runtime/listeners.ts';
import type { Logger } from '../runtime/log.ts';

const PAUSE_ID = objectId(PROVISIONING_PAUSE);
const DRAINED = 'drained: nothing new is started until sutler drain --undo';

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

  /** @param changes  notified with the id in the wait list of what has changed */
  constructor(changes: Listeners<string>, log: Logger) {
    this.#changes = changes;
    this.#log = log;
  }

  /** To be called with each answer of Redis while this ingest leads. */
  learn({ isAfterOther, isDrained }: LeaderFacts): void {
    const hasChanged = this.#isAllowed !== !isDrained;
    if (hasChanged && isDrained) this.#log.warn(DRAINED);
    if (this.#isAllowed === false && !isDrained)
      this.#log.info('the drain has ended: new work is started again');
    this.#isAllowed = !isDrained;
    if (hasChanged) this.#changes.notify(PAUSE_ID);
    if (hasChanged && !isDrained) this.allowed.notify();
    if (isAfterOther) this.afterOther.notify();
  }

  /** For /readyz of the leader: says that sutler is drained, while it is. */
  get note(): string | undefined {
    return this.#isAllowed === false ? DRAINED : undefined;
  }

  /** This ingest does not lead any more. */
  forget(): void {
    this.#isAllowed = undefined;
  }

  /** Undefined: another object, or Redis has not been asked in this term. */
  versionOf(object: string): string | undefined {
    if (object !== PAUSE_ID || this.#isAllowed === undefined) return undefined;
    return pauseVersion(!this.#isAllowed);
  }
}
