import { MAX_VIEW_AGE_MS, type SharedHandles } from '../hints/shared-handles.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { Informers } from './objects/informers.ts';

/** A view expires 5 s after the step before it, so a step may be 2 s late. */
const PUBLISH_PERIOD_MS = 1_500;
/** Pause before a first view, in which the watch delivers changes from before, for example from a
 * time when this process was frozen. */
const FIRST_VIEW_MS = 200;

/** Publishes the shared handles that the watch of PVs shows, while this ingest leads: at each
 * change, and every 1.5 s. A worker reads them right before it sends DeleteVolume
 * (docs/decisions/0006). */
export class HandlePublisher {
  readonly #informers: Pick<Informers, 'isFollowingVolumes' | 'sharedHandles'>;
  readonly #store: Pick<SharedHandles, 'publish'>;
  readonly #isLeading: () => boolean;
  readonly #loop: PollLoop;
  readonly #endChanges: () => void;
  /** When the last step was, by Redis' clock; 0 = none since this ingest leads and follows PVs. */
  #asOfMs = 0;

  constructor(
    informers: Pick<Informers, 'isFollowingVolumes' | 'sharedHandles' | 'sharing'>,
    store: Pick<SharedHandles, 'publish'>,
    o: { readonly isLeading: () => boolean; readonly log: Logger; readonly periodMs?: number },
  ) {
    this.#informers = informers;
    this.#store = store;
    this.#isLeading = o.isLeading;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) =>
        o.log.debug({ err: error }, 'could not publish the shared handles; trying again'),
      periodMs: o.periodMs ?? PUBLISH_PERIOD_MS,
    });
    this.#endChanges = informers.sharing.subscribe(() => this.#loop.runNow());
  }

  stop(): Promise<void> {
    this.#endChanges();
    return this.#loop.stop();
  }

  /** @returns the pause before the next step, if it is not the usual one */
  async #step(): Promise<number | void> {
    if (!this.#isLeading() || !this.#informers.isFollowingVolumes) {
      this.#asOfMs = 0;
      return;
    }
    const asOfMs = this.#asOfMs;
    this.#asOfMs = await this.#store.publish(this.#informers.sharedHandles(), asOfMs);
    if (this.#asOfMs - asOfMs > MAX_VIEW_AGE_MS) return FIRST_VIEW_MS;
  }
}
