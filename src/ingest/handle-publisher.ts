import { randomUUID } from 'node:crypto';
import type { SharedHandles } from '../hints/shared-handles.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import type { Informers } from './objects/informers.ts';

export interface HandlePublisherOptions {
  /** `isFollowingVolumes`: whether changes of PVs arrive at once. */
  readonly informers: Pick<Informers, 'isFollowingVolumes' | 'sharedHandles'>;
  readonly store: Pick<SharedHandles, 'publish'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The view expires after 5 s and is as old as the last step, so a step may be 2 s late. */
const PUBLISH_PERIOD_MS = 1_500;
/** Pause before the first view: what happened before, as while this process was frozen, has arrived
 * by then. */
const FIRST_VIEW_MS = 200;

/** Tells the workers which handles several PVs name, so that a worker can look right before it
 * sends DeleteVolume (docs/decisions/0006): what a watch of PVs shows, at once when that changes,
 * and every 1.5 s that it has not. The first ingest does, whether it leads or not, until it falls
 * silent. */
export class HandlePublisher {
  readonly #options: HandlePublisherOptions;
  readonly #publisher = randomUUID();
  readonly #loop: PollLoop;
  /** Grows with every change of what is published. */
  #version = 1;
  /** The version that Redis has. */
  #publishedVersion = 0;
  /** The last time, by Redis' clock, at which PVs were followed; 0 = not since they are again. */
  #asOfMs = 0;

  constructor(options: HandlePublisherOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: (error) =>
        log.debug({ err: error }, 'could not publish the shared handles; trying again'),
      periodMs: PUBLISH_PERIOD_MS,
      clock,
    });
  }

  /** To be called when it changed which PVs share a handle. */
  changed(): void {
    this.#version += 1;
    this.#loop.runNow();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** @returns the pause before the next step, if it is not the usual one */
  async #step(): Promise<number | void> {
    const { informers, store } = this.#options;
    if (!informers.isFollowingVolumes) {
      this.#asOfMs = 0;
      return;
    }
    const version = this.#version;
    const handles = version === this.#publishedVersion ? undefined : informers.sharedHandles();
    const view = { publisher: this.#publisher, version, handles, asOfMs: this.#asOfMs };
    const { kind, nowMs } = await store.publish(view);
    this.#asOfMs = nowMs;
    if (kind === 'outdated') return FIRST_VIEW_MS;
    if (kind === 'taken') return;
    this.#publishedVersion = kind === 'published' ? version : 0;
    if (kind === 'unknown') return 0;
  }
}
