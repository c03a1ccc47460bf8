import { Counter, Gauge, type Registry } from 'prom-client';
import type { KubeClient } from '../../kube/client.ts';
import { KubeError } from '../../kube/kube-error.ts';
import { claims, volumes } from '../../kube/resources.ts';
import { objectId } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { RareWarnings } from '../../runtime/rare-warnings.ts';
import type { ChangeNotice } from '../../webhooks/notices.ts';
import { PlannedLooks, type Target } from './planned-looks.ts';

/** An object as a look found it. */
export interface Look {
  readonly target: Target;
  /** As the API server sent it; undefined: it does not exist, or not yet. */
  readonly object: unknown;
}

export interface LooksOptions {
  readonly client: Pick<KubeClient, 'get'>;
  readonly onLook: (look: Look) => void;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Looks under way at the same time. */
const MAX_RUNNING = 16;
/** How often planned looks are checked for those that have become due. */
const TICK_MS = 50;
const LOOK_TIMEOUT_MS = 10_000;

/** A kind of objects that this process may not read. */
interface Refusal {
  readonly trouble: string;
  /** The object by which it is seen whether that has changed; '' = none. */
  readonly repeated: string;
}

/** Reads the objects that hints name from the API server, some at a time, and each once for hints
 * that come together. A look that fails is repeated some times, unless it may not be done: of each
 * kind that may not be read, one object alone is looked at again, every half a minute. */
export class Looks {
  readonly #options: LooksOptions;
  readonly #planned = new PlannedLooks();
  readonly #stopped = new AbortController();
  readonly #looked: Counter<'found'>;
  readonly #dropped: Counter;
  readonly #warnings: RareWarnings;
  /** By the plural of the resource. */
  readonly #refusals = new Map<string, Refusal>();
  #running = 0;
  /** Runs while looks are planned. */
  #tick: NodeJS.Timeout | undefined;

  constructor(options: LooksOptions) {
    this.#options = options;
    this.#warnings = new RareWarnings(options.log, options.clock);
    const registers = [options.metrics];
    this.#looked = new Counter({
      name: 'sutler_hinted_looks_total',
      help: 'Reads of objects that hints named, by whether the object existed.',
      labelNames: ['found'],
      registers,
    });
    this.#dropped = new Counter({
      name: 'sutler_hints_dropped_total',
      help: 'Hints whose object was not read: too many looks were planned, or all failed.',
      registers,
    });
    const planned: Gauge = new Gauge({
      name: 'sutler_hinted_looks_planned',
      help: 'Objects that hints named and that are to be read, now or a moment later.',
      registers,
      collect: () => planned.set(this.#planned.due + this.#planned.planned),
    });
  }

  /** Objects that wait for their look; not those that are planned for later. */
  get due(): number {
    return this.#planned.due;
  }

  /** Which right is missing, for /readyz; undefined while none is. */
  get trouble(): string | undefined {
    return this.#refusals.values().next().value?.trouble;
  }

  add(hint: ChangeNotice): void {
    if (!this.#planned.add(hint, this.#options.clock.nowMs())) this.#dropped.inc();
    this.#start();
  }

  /** Forgets all looks that have not begun. */
  clear(): void {
    this.#planned.clear();
    this.#refusals.clear();
  }

  stop(): void {
    this.#stopped.abort();
    this.clear();
    clearInterval(this.#tick);
  }

  #start(): void {
    this.#watchPlans();
    while (this.#running < MAX_RUNNING) {
      const target = this.#planned.take();
      if (target === undefined) return;
      this.#running += 1;
      void this.#look(target).finally(() => {
        this.#running -= 1;
        if (!this.#stopped.signal.aborted) this.#start();
      });
    }
  }

  async #look(target: Target): Promise<void> {
    const { client, onLook, clock, log } = this.#options;
    const { resource: plural, namespace, name } = target;
    const [resource, ref] =
      plural === 'persistentvolumeclaims' ? [claims, { namespace, name }] : [volumes, { name }];
    const { signal } = this.#stopped;
    try {
      const object = await client.get(resource, ref, { signal, timeoutMs: LOOK_TIMEOUT_MS });
      this.#planned.done(target);
      this.#refusals.delete(plural);
      this.#looked.inc({ found: String(object !== undefined) });
      onLook({ target, object });
    } catch (error) {
      if (error instanceof KubeError && (error.code === 401 || error.code === 403))
        return this.#refuse(target, error.code);
      if (!this.#planned.failed(target, clock.nowMs())) this.#dropped.inc();
      log.debug({ ...target, err: error }, 'could not read an object that a hint named');
    }
  }

  #refuse(target: Target, code: 401 | 403): void {
    const { resource } = target;
    const known = this.#refusals.get(resource);
    const id = objectId(target);
    const mayRepeat = known === undefined || known.repeated === '' || known.repeated === id;
    const isRepeated = this.#planned.refused(target, this.#options.clock.nowMs(), mayRepeat);
    this.#dropped.inc();
    const trouble = code === 401 ? `HTTP 401 to get ${resource}: ${NO_LOGIN}` : missing(resource);
    if (mayRepeat) this.#refusals.set(resource, { trouble, repeated: isRepeated ? id : '' });
    if (known === undefined)
      this.#warnings.warn({ resource, code }, `hints name objects that are not read: ${trouble}`);
  }

  #watchPlans(): void {
    if (this.#tick !== undefined || this.#planned.planned === 0) return;
    this.#tick = setInterval(() => {
      this.#planned.collectDue(this.#options.clock.nowMs());
      this.#start();
      if (this.#planned.planned > 0) return;
      clearInterval(this.#tick);
      this.#tick = undefined;
    }, TICK_MS);
  }
}

const NO_LOGIN = 'the API server does not take the credentials of ingest';

function missing(resource: string): string {
  return (
    `HTTP 403 to get ${resource}: grant ingest the verb get on ${resource} ` +
    '(k8s/webhooks/rbac.yaml has the rule); until then the resync finds what hints name'
  );
}
