import type { KubeClient } from '../../kube/client.ts';
import type { KubeObject } from '../../kube/objects.ts';
import { claims, classes, selectName, volumes } from '../../kube/resources.ts';
import { parseObjectId } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { PollLoop } from '../../runtime/poll-loop.ts';

export interface FollowedObjectsOptions {
  readonly client: Pick<KubeClient, 'list'>;
  /** Why the source of objects can't tell of changes now; undefined while it can. */
  readonly trouble: () => string | undefined;
  /** Called when an object was read that is new or has changed, with its id in the dependency
   * index. */
  readonly onChange: (object: string) => void;
  /** How often to read each object, where no watch tells of changes. */
  readonly pollMs?: number;
  readonly clock: Clock;
  readonly log: Logger;
}

const READ_AT_ONCE = 8;
const RETRY_MS = 1_000;
const READ_TIMEOUT_MS = 10_000;
/** Objects that are read regularly. A key that waits for another one runs when a notice names that,
 * or after the longest back-off. */
const MAX_POLLED = 500;
const RESOURCES = [claims, volumes, classes];

/** The versions of the claims, classes and volumes that keys wait for. Most of them are kept by no
 * source, so each is read when a key begins to wait for it: by a list of one name, for which a
 * watcher has the permission already. From then on the source tells when it changes. */
export class FollowedObjects {
  readonly #options: FollowedObjectsOptions;
  readonly #loop: PollLoop;
  /** By id in the dependency index; '' = it does not exist, undefined: not known yet. */
  readonly #versions = new Map<string, string | undefined>();
  /** Objects to read. */
  readonly #unread = new Set<string>();
  #nextPollMs = 0;

  constructor(options: FollowedObjectsOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#loop = new PollLoop({
      step: (signal) => this.#step(signal),
      onError: (error) => log.debug({ err: error }, 'could not read what keys wait for'),
      periodMs: RETRY_MS,
      clock,
    });
  }

  /** Follows the claims, classes and volumes among these objects, and no others. */
  follow(objects: ReadonlySet<string>): void {
    for (const id of this.#versions.keys()) if (!objects.has(id)) this.#versions.delete(id);
    const added = [...objects].filter((id) => !this.#versions.has(id) && resourceOf(id));
    for (const id of added) this.#versions.set(id, undefined);
    this.#read(added);
  }

  /** '' = the object does not exist. Undefined: it is not followed, or its version is not known
   * now. */
  versionOf(object: string): string | undefined {
    return this.#options.trouble() === undefined ? this.#versions.get(object) : undefined;
  }

  /** The source saw a version of an object; '' = it was deleted. */
  saw(object: string, version: string): void {
    if (this.#versions.has(object)) this.#versions.set(object, version);
  }

  /** Objects of this resource may be gone that the source did not tell of. */
  listed(resource: string): void {
    const followed = [...this.#versions.keys()].filter((id) => id.startsWith(`${resource}/`));
    this.#read(followed);
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  #read(ids: readonly string[]): void {
    for (const id of ids) this.#unread.add(id);
    if (ids.length > 0) this.#loop.runNow();
  }

  async #step(signal: AbortSignal): Promise<void> {
    const { pollMs, clock } = this.#options;
    if (pollMs !== undefined && clock.nowMs() >= this.#nextPollMs) {
      for (const id of [...this.#versions.keys()].slice(0, MAX_POLLED)) this.#unread.add(id);
      this.#nextPollMs = clock.nowMs() + pollMs;
    }
    while (this.#unread.size > 0 && !signal.aborted) {
      const ids = [...this.#unread].slice(0, READ_AT_ONCE);
      await Promise.all(ids.map((id) => this.#readOne(id, signal)));
    }
  }

  /** What the source tells meanwhile is preferred: it may be newer, and if it is older, the source
   * brings the rest. */
  async #readOne(id: string, signal: AbortSignal): Promise<void> {
    const { client } = this.#options;
    this.#unread.delete(id);
    const resource = resourceOf(id);
    if (resource === undefined || !this.#versions.has(id)) return;
    const before = this.#versions.get(id);
    const { namespace, name } = parseObjectId(id);
    const fieldSelector = selectName(name);
    const inNamespace = resource.namespaced ? { namespace } : {};
    const options = { ...inNamespace, fieldSelector, signal, timeoutMs: READ_TIMEOUT_MS };
    try {
      const { items } = await client.list<KubeObject>(resource, { ...options, metadataOnly: true });
      if (this.#unread.has(id) || this.#versions.get(id) !== before) return;
      const version = items[0]?.metadata.resourceVersion ?? '';
      this.#versions.set(id, version);
      if (version !== before) this.#options.onChange(id);
    } catch (error) {
      this.#unread.add(id);
      throw error;
    }
  }
}

function resourceOf(id: string) {
  const { resource } = parseObjectId(id);
  return RESOURCES.find(({ plural }) => plural === resource);
}
