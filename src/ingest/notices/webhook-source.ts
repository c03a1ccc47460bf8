import { performance } from 'node:perf_hooks';
import { type KubeClient, listPages } from '../../kube/client.ts';
import type { Claim, Volume } from '../../kube/objects.ts';
import type { Store } from '../../kube/reflector.ts';
import { claims, type Resource, volumes } from '../../kube/resources.ts';
import { backoffMs, systemClock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import { type Look, ObjectSource, type SourceOptions } from '../objects/object-source.ts';

const PAGE_TIMEOUT_MS = 60_000;
/** Pause after the first list that failed; doubled with each further one. */
const RETRY = { startMs: 1_000, maxMs: 30_000 };
/** Longest pause after a page. */
const MAX_PAUSE_MS = 2_000;

/** Reads claims and volumes without a watch: those that notices name, and at a resync all of them
 * in pages. Keeps the last state of those that may need a job, to report what waits and to notice
 * users' edits (docs/decisions/0010). */
export class WebhookSource extends ObjectSource {
  readonly #client: KubeClient;
  readonly #stopped = new AbortController();
  #listTrouble: string | undefined;

  constructor(options: SourceOptions) {
    // New objects are enqueued by `looked` and by the callers of the lists.
    super(options, ({ previous }) => previous !== undefined);
    this.#client = options.client;
  }

  get trouble(): string | undefined {
    return this.classWatch.trouble ?? this.#listTrouble;
  }

  /** Not known without a watch; the job reads the claim's volume. */
  hasVolume(): boolean {
    return false;
  }

  /** Passes on an object that a notice named; forgets an object that does not exist. */
  looked({ target, object: raw }: Look): void {
    const isClaim = target.resource === claims.plural;
    if (raw === undefined)
      return (isClaim ? this.pendingClaims : this.pendingVolumes).remove({ metadata: target });
    if (isClaim) {
      const claim = this.pendingClaims.put(raw, 'added');
      if (claim !== undefined) this.tell((handler) => handler.enqueueClaim(claim, 'ensureQueued'));
    } else {
      const volume = this.pendingVolumes.put(raw, 'added');
      if (volume !== undefined)
        this.tell((handler) => handler.enqueueVolume(volume, 'ensureQueued'));
    }
  }

  claims(isWanted: () => boolean): AsyncGenerator<Claim> {
    return this.#list(claims, this.pendingClaims, isWanted);
  }

  volumes(isWanted: () => boolean): AsyncGenerator<Volume> {
    return this.#list(volumes, this.pendingVolumes, isWanted);
  }

  override async stop(): Promise<void> {
    this.#stopped.abort();
    await super.stop();
  }

  /** Lists all objects in pages, with a pause after each page as long as the page took. Passes
   * edits on; the caller enqueues the rest, because it may have to spread the keys. Begins again
   * after an error until the list is complete, so objects may come twice.
   * @throws Error when `isWanted` returns false */
  async *#list<T extends Claim | Volume>(
    resource: Resource,
    cache: Store<T>,
    isWanted: () => boolean,
  ): AsyncGenerator<T> {
    const { signal } = this.#stopped;
    const o = { signal, timeoutMs: PAGE_TIMEOUT_MS };
    const checkWanted = (): void => {
      if (!isWanted() || signal.aborted)
        throw new Error(`the list of ${resource.plural} ended early: this process does not lead`);
    };
    for (let failures = 1; ; failures += 1) {
      checkWanted();
      try {
        let startedMs = performance.now();
        cache.beginList();
        for await (const { items } of listPages<unknown>(this.#client, resource, o)) {
          yield* items.flatMap((raw) => cache.put(raw, 'listed') ?? []);
          checkWanted();
          await systemClock.sleep(Math.min(performance.now() - startedMs, MAX_PAUSE_MS), signal);
          startedMs = performance.now();
        }
        cache.endList();
        this.#listTrouble = undefined;
        return;
      } catch (error) {
        checkWanted();
        this.#listTrouble = `${resource.plural}: ${messageOf(error)}`;
        if (failures === 1)
          this.log.warn({ error: this.#listTrouble }, 'could not list; trying again');
        await systemClock.sleep(backoffMs(RETRY, failures), signal);
      } finally {
        if (!isWanted()) this.#listTrouble = undefined;
      }
    }
  }
}
