import { MAX_VIEW_AGE_MS, type SharedHandles } from '../hints/shared-handles.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { Informers } from './objects/informers.ts';

export interface HandlePublisherOptions {
  /** `isFollowingVolumes`: whether changes of PVs arrive at once. */
  readonly informers: Pick<Informers, 'isFollowingVolumes' | 'sharedHandles'>;
  readonly store: Pick<SharedHandles, 'publish'>;
  readonly isLeading: () => boolean;
  readonly log: Logger;
}

/** The view expires after 5 s and is as old as the last step, so a step may be 2 s late. */
const PUBLISH_PERIOD_MS = 1_500;
/** Pause before a first view: what happened before, as while this process was frozen, has arrived
 * by then. */
const FIRST_VIEW_MS = 200;

/** Tells the workers which handles several PVs name, so that a worker can look right before it
 * sends DeleteVolume (docs/decisions/0006): what a watch of PVs shows, at once when that changes,
 * and every 1.5 s, while this ingest leads. */
export class HandlePublisher {
  readonly #options: HandlePublisherOptions;
  readonly #loop: PollLoop;
  /** The last time, by Redis' clock, at which PVs were followed; 0 = not since they are again. */
  #asOfMs = 0;

  constructor(options: HandlePublisherOptions) {
    this.#options = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) =>
        options.log.debug({ err: error }, 'could not publish the shared handles; trying again'),
      periodMs: PUBLISH_PERIOD_MS,
    });
  }

  /** To be called when it changed which PVs share a handle. */
  changed(): void {
    this.#loop.runNow();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** @returns the pause before the next step, if it is not the usual one */
  async #step(): Promise<number | void> {
    const { informers, store, isLeading } = this.#options;
    if (!isLeading() || !informers.isFollowingVolumes) {
      this.#asOfMs = 0;
      return;
    }
    const asOfMs = this.#asOfMs;
    this.#asOfMs = await store.publish(informers.sharedHandles(), asOfMs);
    if (this.#asOfMs - asOfMs > MAX_VIEW_AGE_MS) return FIRST_VIEW_MS;
  }
}
