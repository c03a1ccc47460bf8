import type { Claim, Class, Volume } from '../../kube/objects.ts';
import type { ChangeNotice } from '../../webhooks/notices.ts';
import type { EventHandler } from './event-handler.ts';

/** Objects that may not be done, as they were seen last. */
export interface Unfinished {
  readonly claims: Iterable<Claim>;
  readonly volumes: Iterable<Volume>;
}

/** An object that a change notice named, as it was read then. */
export interface Look {
  readonly target: ChangeNotice;
  /** As the API server sent it; undefined: it does not exist, or not yet. */
  readonly object: unknown;
}

/** A driver that is served by a source. */
export interface ServedDriver {
  /** Told of each change of a claim or volume that may concern a job. */
  readonly handler: EventHandler;
  /** Called when a class was added, modified or deleted. */
  readonly onClassChange?: () => void;
}

/** The drivers that a source serves. */
export class ServedDrivers {
  readonly #drivers = new Set<ServedDriver>();

  add(driver: ServedDriver): void {
    this.#drivers.add(driver);
  }

  delete(driver: ServedDriver): void {
    this.#drivers.delete(driver);
  }

  /** Whether this process leads one of them. */
  get isLeading(): boolean {
    return this.some(({ handler }) => handler.queue.isAllowing);
  }

  some(isSo: (driver: ServedDriver) => boolean): boolean {
    for (const driver of this.#drivers) if (isSo(driver)) return true;
    return false;
  }

  each(call: (driver: ServedDriver) => void): void {
    for (const driver of this.#drivers) call(driver);
  }
}

/** Where this process learns of claims, classes and volumes. One serves all drivers. */
export interface ObjectSource {
  /** Begins to serve a driver, at any time.
   * @returns  `waitForSync` resolves when everything that concerns the driver is known, or when the
   *   signal aborts; `stop` ends serving it */
  serve(driver: ServedDriver): {
    readonly waitForSync: (signal: AbortSignal) => Promise<void>;
    readonly stop: () => void;
  };
  /** All classes, without their parameters. */
  classes(): Iterable<Class>;
  classOf(name: string): Class | undefined;
  /** Whether a claim is known to have a volume that is not being deleted. */
  hasVolume(claimUid: string): boolean;
  /** The claims that may need a job, and perhaps others; one may come twice.
   * @param isWanted  asked before each request to the API server
   * @throws Error when nobody wants them any more */
  claims(isWanted: () => boolean): AsyncIterable<Claim>;
  /** The volumes, as the claims. */
  volumes(isWanted: () => boolean): AsyncIterable<Volume>;
  /** Passes on what was read because a change notice named it. */
  looked(look: Look): void;
  /** What it has in memory. */
  unfinished(): Unfinished;
  /** For /readyz: why what is known is incomplete or out of date. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}
