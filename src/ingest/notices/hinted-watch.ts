import type { KubeObject } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import { objectId } from '../../queue/dependency-index.ts';
import type { Logger } from '../../runtime/log.ts';
import { EventHandler } from '../objects/event-handler.ts';
import type { DriverObjects, ServedDriver } from '../objects/object-source.ts';
import { transformClaim, transformVolume } from '../objects/transforms.ts';
import type { Look } from './looks.ts';

interface WatchingDriver {
  readonly served: ServedDriver;
  readonly objects: Pick<DriverObjects, 'versionOf'>;
  readonly triage: EventHandler;
}

/** Hints beside a watch (--event-source=both): what a hint names and the watch has not reported yet
 * is enqueued at once if it needs a job, as while a watch hangs or the cache is filled again. All
 * the rest is left to the watch, such as what a change means for a delayed job. */
export class HintedWatch {
  readonly #drivers = new Set<WatchingDriver>();
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Whether this process leads a driver. */
  get isLeading(): boolean {
    return [...this.#drivers].some(({ served }) => served.queue.isAllowing);
  }

  /** Begins to serve a driver.
   * @returns a function that ends that */
  serve(served: ServedDriver, objects: Pick<DriverObjects, 'versionOf' | 'classes'>): () => void {
    const lookups = {
      classOf: (name: string) => [...objects.classes()].find((each) => each.metadata.name === name),
      hasVolume: () => false,
      findOther: () => undefined,
    };
    const driver = { served, objects, triage: new EventHandler(served, lookups, this.#log) };
    this.#drivers.add(driver);
    return () => this.#drivers.delete(driver);
  }

  /** Offers an object that was read because a hint named it to all drivers. */
  looked({ target, object }: Look): void {
    if (object === undefined) return;
    const { resourceVersion } = (object as KubeObject).metadata;
    for (const { objects, triage } of this.#drivers) {
      if (objects.versionOf(objectId(target)) === resourceVersion) continue;
      if (target.resource === claims.plural) triage.claimChanged(transformClaim(object), undefined);
      else triage.volumeChanged(transformVolume(object), undefined);
    }
  }
}
