import { performance } from 'node:perf_hooks';
import { type KubeClient, type ListPage, PAGE_SIZE } from '../../kube/client.ts';
import { isExpired } from '../../kube/kube-error.ts';
import type { Resource } from '../../kube/resources.ts';
import { backoffMs, type Clock } from '../../runtime/clock.ts';
import { messageOf } from '../../runtime/error-message.ts';
import type { Logger } from '../../runtime/log.ts';

export interface PacedListsOptions {
  readonly client: Pick<KubeClient, 'list'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly pageSize?: number;
}

export interface Listing<T> {
  readonly resource: Resource;
  /** Cuts an object down to what is needed. An object for which it throws is logged and skipped. */
  readonly transform: (raw: unknown) => T;
  /** Asked before each request. Once it says no, the list ends with Unwanted. */
  readonly isWanted: () => boolean;
}

const PAGE_TIMEOUT_MS = 60_000;
/** Bounds of the pause after a page, which is as long as the page took. */
const PAUSE = { minMs: 2, maxMs: 2_000 };
/** Pause after the first failure; doubled with each further one. */
const RETRY = { startMs: 1_000, maxMs: 30_000 };

/** Lists collections in pages for a whole process: one page at a time, with as long a pause after
 * each as it took. So lists take half of the time of one request at most, and less from an API
 * server that is slow. */
export class PacedLists {
  readonly #options: PacedListsOptions;
  readonly #stopped = new AbortController();
  #turn: Promise<void> = Promise.resolve();
  #trouble: string | undefined;

  constructor(options: PacedListsOptions) {
    this.#options = options;
  }

  /** Why the API server did not answer with the last page; undefined where it did. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** The pages of a collection. A page that fails is asked for again until it comes. A list that
   * takes so long that the API server drops its snapshot (410) starts again, without pauses: so
   * objects may come twice.
   * @throws Unwanted when nobody wants it any more, and after `stop` */
  async *pages<T>(listing: Listing<T>): AsyncGenerator<readonly T[]> {
    const { resource, isWanted } = listing;
    const { signal } = this.#stopped;
    let continueToken: string | undefined;
    let isPaced = true;
    let failures = 0;
    for (;;) {
      if (signal.aborted || !isWanted()) {
        this.#trouble = undefined;
        throw new Unwanted(resource);
      }
      try {
        const from = continueToken;
        const page = await this.#inTurn(isPaced, () => this.#ask(listing, from));
        this.#trouble = undefined;
        failures = 0;
        yield page.items;
        ({ continueToken } = page);
        if (continueToken === undefined) return;
      } catch (error) {
        if (signal.aborted) continue;
        if (isExpired(error) && continueToken !== undefined) {
          continueToken = undefined;
          isPaced = false;
          continue;
        }
        failures += 1;
        this.#reportFailure(resource, failures, error);
        await this.#options.clock.sleep(backoffMs(RETRY, failures), signal);
      }
    }
  }

  stop(): void {
    this.#stopped.abort();
  }

  #reportFailure({ plural }: Resource, failures: number, error: unknown): void {
    this.#trouble = `${plural}: ${messageOf(error)}`;
    if (failures !== 1 && failures % 10 !== 0) return;
    const fields = { resource: plural, failures, error: messageOf(error) };
    this.#options.log.warn(fields, 'could not list a page; trying again');
  }

  async #ask<T>(
    { resource, transform }: Listing<T>,
    continueToken: string | undefined,
  ): Promise<ListPage<T>> {
    const { client, pageSize: limit = PAGE_SIZE, log } = this.#options;
    const { signal } = this.#stopped;
    const options = { limit, continueToken, signal, timeoutMs: PAGE_TIMEOUT_MS };
    const page = await client.list<unknown>(resource, options);
    const items = page.items.flatMap((raw) => {
      try {
        return [transform(raw)];
      } catch (error) {
        const { plural } = resource;
        log.error({ resource: plural, error: messageOf(error) }, 'object skipped: not readable');
        return [];
      }
    });
    return { ...page, items };
  }

  /** Runs a request when those before it have ended, and their pauses. */
  #inTurn<T>(isPaced: boolean, request: () => Promise<T>): Promise<T> {
    let tookMs = 0;
    const answer = this.#turn.then(async () => {
      const startedMs = performance.now();
      return await request().finally(() => (tookMs = performance.now() - startedMs));
    });
    const pause = (): Promise<void> => {
      const pauseMs = isPaced ? tookMs : PAUSE.minMs;
      const boundedMs = Math.min(PAUSE.maxMs, Math.max(PAUSE.minMs, pauseMs));
      return this.#options.clock.sleep(boundedMs, this.#stopped.signal);
    };
    this.#turn = answer.then(pause, pause);
    return answer;
  }
}

/** A list ended early, because nobody wants it any more. */
export class Unwanted extends Error {
  override readonly name = 'Unwanted';

  constructor({ plural }: Resource) {
    super(`the list of ${plural} ended early: this process does not lead any more, or stops`);
  }
}
