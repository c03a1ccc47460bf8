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

/** Claims and volumes without a watch of them: notices say which of them to look at, and a resync
 * lists all of them in pages. Of those that may need a job the last state is kept, to tell what
 * waits and what a user has edited since (docs/decisions/0010). */
export class WebhookSource extends ObjectSource {
  readonly #client: KubeClient;
  readonly #stopped = new AbortController();
  #listTrouble: string | undefined;

  constructor(options: SourceOptions) {
    // What is new is enqueued by the caller of `looked` and of the lists.
    super(options, ({ previous }) => previous !== undefined);
    this.#client = options.client;
  }

  get trouble(): string | undefined {
    return this.classWatch.trouble ?? this.#listTrouble;
  }

  /** That is left to the job, which reads the volume of the claim. */
  hasVolume(): boolean {
    return false;
  }

  /** Passes an object on that was read because a notice named it. One that does not exist counts as
   * not stored yet. */
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

  /** All objects, in pages, with a pause after each as long as it took. What needs a job is left to
   * the caller, which may have to spread the keys; edits are passed on. A list that fails begins
   * again until it is complete, so objects may come twice.
   * @throws Error when nobody wants it any more */
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
