import type { Counter, Registry } from 'prom-client';
import type { KubeClient } from '../../kube/client.ts';
import { KubeError } from '../../kube/kube-error.ts';
import { claims, keyOf, volumes } from '../../kube/resources.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { metricsIn } from '../../runtime/metrics.ts';
import type { ChangeNotice } from '../../webhooks/notices.ts';

/** An object to look at. */
export type Target = Pick<ChangeNotice, 'resource' | 'namespace' | 'name'>;

/** An object as a look found it. */
export interface Look {
  readonly target: Target;
  /** As the API server sent it; undefined: it does not exist, or not yet. */
  readonly object: unknown;
}

export interface LookQueueOptions {
  readonly client: Pick<KubeClient, 'get'>;
  readonly onLook: (look: Look) => void;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Looks under way at the same time. */
const MAX_RUNNING = 16;
/** Objects with looks that are not due yet; more are dropped. 200 bytes each. */
const MAX_PLANNED = 10_000;
/** How often planned looks are checked for those that have become due. */
const TICK_MS = 50;
const LOOK_TIMEOUT_MS = 10_000;
/** When to look after an early notice: usually the object is stored by the first time, and after a
 * slow admission by a later one. */
const EARLY_MS = [100, 1_000, 5_000] as const;
/** When to look again after the first look that failed, the second and the third; if one more
 * fails, the notice is dropped. */
const RETRY_MS = [1_000, 5_000, 30_000] as const;
/** When to look again at an object that may not be read, to see whether that has changed. */
const REFUSED_MS = 30_000;

interface Planned {
  readonly target: Target;
  /** How many looks have failed since the last notice. */
  readonly failures: number;
}

/** A kind of objects that this process may not read. */
interface Refusal {
  readonly trouble: string;
  /** The object by which it is seen whether that has changed; '' = none. */
  readonly repeated: string;
}

/** A work queue with delays, of the objects that notices name: reads them from the API server, some
 * at a time, and each once for notices that come together, by a look that begins after them. A look
 * that fails is repeated some times, unless it may not be done: of each kind that may not be read,
 * one object alone is looked at again, every half a minute. */
export class LookQueue {
  readonly #options: LookQueueOptions;
  readonly #stopped = new AbortController();
  /** By id of the object, oldest first. */
  readonly #due = new Map<string, Planned>();
  /** Looks that are not due yet, the next one of each object first. */
  readonly #later = new Map<string, Planned & { readonly dueMs: readonly number[] }>();
  readonly #running = new Set<string>();
  /** By the plural of the resource. */
  readonly #refusals = new Map<string, Refusal>();
  readonly #looked: Counter<'found'>;
  readonly #dropped: Counter;
  /** Runs while looks are planned. */
  #tick: NodeJS.Timeout | undefined;

  constructor(options: LookQueueOptions) {
    this.#options = options;
    const { counter, sum } = metricsIn(options.metrics);
    this.#looked = counter(
      'sutler_notice_looks_total',
      'Reads of objects that notices named, by whether the object existed.',
      ['found'],
    );
    this.#dropped = counter(
      'sutler_notices_dropped_total',
      'Notices whose object was not read: too many looks were planned, or all failed.',
      [],
    );
    sum(
      'sutler_notice_looks_planned',
      'Objects that notices named and that are to be read, now or a moment later.',
      () => this.#due.size + this.#later.size,
    );
  }

  /** Objects that wait for their look; not those that are planned for later. */
  get due(): number {
    return this.#due.size;
  }

  /** Which right is missing, for /readyz; undefined while none is. */
  get trouble(): string | undefined {
    return this.#refusals.values().next().value?.trouble;
  }

  add({ isEarly, ...target }: ChangeNotice): void {
    const planned = { target, failures: 0 };
    if (isEarly) this.#plan(planned, EARLY_MS);
    else this.#due.set(idOf(target), planned);
    this.#start();
  }

  /** Forgets all looks that have not begun. */
  clear(): void {
    this.#due.clear();
    this.#later.clear();
    this.#refusals.clear();
  }

  stop(): void {
    this.#stopped.abort();
    this.clear();
    clearInterval(this.#tick);
  }

  #start(): void {
    if (this.#later.size > 0) this.#tick ??= setInterval(() => this.#collectDue(), TICK_MS);
    for (const [id, planned] of this.#due) {
      if (this.#running.size >= MAX_RUNNING) return;
      if (this.#running.has(id)) continue;
      this.#due.delete(id);
      this.#running.add(id);
      void this.#look(planned).finally(() => {
        this.#running.delete(id);
        if (!this.#stopped.signal.aborted) this.#start();
      });
    }
  }

  async #look(planned: Planned): Promise<void> {
    const { client, onLook, log } = this.#options;
    const { resource: plural, namespace, name } = planned.target;
    const [resource, ref] =
      plural === 'persistentvolumeclaims' ? [claims, { namespace, name }] : [volumes, { name }];
    const { signal } = this.#stopped;
    try {
      const object = await client.get(resource, ref, { signal, timeoutMs: LOOK_TIMEOUT_MS });
      this.#refusals.delete(plural);
      this.#looked.inc({ found: String(object !== undefined) });
      onLook({ target: planned.target, object });
    } catch (error) {
      if (error instanceof KubeError && (error.code === 401 || error.code === 403))
        return this.#refuse(planned, error.code);
      log.debug({ ...planned.target, err: error }, 'could not read an object that a notice named');
      this.#retry(planned);
    }
  }

  #retry({ target, failures }: Planned): void {
    const id = idOf(target);
    if (this.#due.has(id) || this.#later.has(id)) return;
    const afterMs = RETRY_MS[failures];
    if (afterMs === undefined) this.#dropped.inc();
    else this.#plan({ target, failures: failures + 1 }, [afterMs]);
  }

  #refuse({ target }: Planned, code: 401 | 403): void {
    const { resource } = target;
    const id = idOf(target);
    const known = this.#refusals.get(resource);
    this.#later.delete(id);
    this.#dropped.inc();
    if (known !== undefined && known.repeated !== '' && known.repeated !== id) return;
    const isRepeated = this.#plan({ target, failures: 0 }, [REFUSED_MS]);
    const trouble = code === 401 ? `HTTP 401 to get ${resource}: ${NO_LOGIN}` : missing(resource);
    this.#refusals.set(resource, { trouble, repeated: isRepeated ? id : '' });
    if (known === undefined)
      this.#options.log.warn(
        { resource, code },
        `notices name objects that are not read: ${trouble}`,
      );
  }

  /** A look that is due soon stays where it is, so that notices one after the other do not put it
   * off for ever.
   * @returns false if it was dropped, because too many are planned */
  #plan(planned: Planned, afterMs: readonly number[]): boolean {
    const id = idOf(planned.target);
    const earlier = this.#later.get(id);
    if (earlier === undefined && this.#later.size >= MAX_PLANNED) {
      this.#dropped.inc();
      return false;
    }
    const nowMs = this.#options.clock.nowMs();
    const [first = nowMs, ...others] = afterMs.map((ms) => nowMs + ms);
    const dueMs = [Math.min(earlier?.dueMs[0] ?? Infinity, first), ...others];
    this.#later.set(id, { ...planned, dueMs });
    return true;
  }

  #collectDue(): void {
    const nowMs = this.#options.clock.nowMs();
    for (const [id, planned] of this.#later) {
      const dueMs = planned.dueMs.filter((each) => each > nowMs);
      if (dueMs.length === planned.dueMs.length) continue;
      this.#due.set(id, planned);
      if (dueMs.length === 0) this.#later.delete(id);
      else this.#later.set(id, { ...planned, dueMs });
    }
    this.#start();
    if (this.#later.size > 0) return;
    clearInterval(this.#tick);
    this.#tick = undefined;
  }
}

const NO_LOGIN = 'the API server does not take the credentials of ingest';

function missing(resource: string): string {
  return (
    `HTTP 403 to get ${resource}: grant ingest the verb get on ${resource} ` +
    '(k8s/webhooks/rbac.yaml has the rule); until then the resync finds what notices name'
  );
}

function idOf(target: Target): string {
  return `${target.resource}/${keyOf(target)}`;
}
