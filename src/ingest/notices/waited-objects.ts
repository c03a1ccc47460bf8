import type { KubeClient } from '../../kube/client.ts';
import type { KubeObject } from '../../kube/objects.ts';
import { claims, volumes } from '../../kube/resources.ts';
import { objectId, parseObjectId } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';
import type { Look } from './looks.ts';

export interface WaitedObjectsOptions {
  readonly client: Pick<KubeClient, 'get'>;
  /** Called when a version is known, or has changed, with the object's id in the wait list. */
  readonly onVersion: (object: string) => void;
  readonly clock: Clock;
  readonly log: Logger;
  /** How often each object is read although no hint names it. */
  readonly periodMs?: number;
}

const PERIOD_MS = 30_000;
const READ_TIMEOUT_MS = 10_000;
/** Objects that are read regularly. A key that waits for another one runs when a hint names that,
 * or after the longest back-off. */
const MAX_POLLED = 500;
const RESOURCES = [claims, volumes];

/** The versions of the claims and volumes that keys wait for, where none is watched: each is read
 * when a key begins to wait for it, when a hint names it, and twice a minute, one after the
 * other. */
export class WaitedObjects {
  readonly #options: WaitedObjectsOptions;
  readonly #stopped = new AbortController();
  readonly #loop: PollLoop;
  /** By id in the wait list; undefined: not read yet. */
  readonly #versions = new Map<string, string | undefined>();

  constructor(options: WaitedObjectsOptions) {
    this.#options = options;
    const { periodMs = PERIOD_MS, clock, log } = options;
    this.#loop = new PollLoop({
      step: () => this.#readAll(),
      onError: (error) => log.debug({ err: error }, 'could not read what keys wait for'),
      periodMs,
      clock,
    });
  }

  /** Follows the claims and volumes among these objects, and no others. */
  follow(objects: ReadonlySet<string>): void {
    for (const id of this.#versions.keys()) if (!objects.has(id)) this.#versions.delete(id);
    let hasNew = false;
    for (const id of objects) {
      if (this.#versions.has(id) || resourceOf(id) === undefined) continue;
      this.#versions.set(id, undefined);
      hasNew = true;
    }
    if (hasNew) this.#loop.runNow();
  }

  /** '' = the object does not exist; undefined: not followed, or not read yet. */
  versionOf(object: string): string | undefined {
    return this.#versions.get(object);
  }

  /** To be called with each object that was read because a hint named it. */
  looked({ target, object }: Look): void {
    const id = objectId(target);
    if (this.#versions.has(id)) this.#setVersion(id, versionIn(object));
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#loop.stop();
  }

  async #readAll(): Promise<void> {
    const { client } = this.#options;
    const { signal } = this.#stopped;
    // Those that were never read come first.
    const ids = [...this.#versions.keys()];
    const unread = ids.filter((id) => this.#versions.get(id) === undefined);
    for (const id of new Set([...unread, ...ids].slice(0, MAX_POLLED))) {
      const resource = resourceOf(id);
      if (signal.aborted || resource === undefined || !this.#versions.has(id)) continue;
      const { namespace, name } = parseObjectId(id);
      const ref = resource.namespaced ? { namespace, name } : { name };
      const object = await client.get(resource, ref, { signal, timeoutMs: READ_TIMEOUT_MS });
      if (this.#versions.has(id)) this.#setVersion(id, versionIn(object));
    }
  }

  #setVersion(id: string, version: string): void {
    if (this.#versions.get(id) === version) return;
    this.#versions.set(id, version);
    this.#options.onVersion(id);
  }
}

function resourceOf(id: string) {
  const { resource } = parseObjectId(id);
  return RESOURCES.find(({ plural }) => plural === resource);
}

function versionIn(object: unknown): string {
  return (object as KubeObject | undefined)?.metadata.resourceVersion ?? '';
}
