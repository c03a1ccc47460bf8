import { Counter, Gauge, type Registry } from 'prom-client';
import type { KubeClient } from '../../kube/client.ts';
import { claims, volumes } from '../../kube/resources.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import type { Hint } from './hint.ts';
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

/** Reads the objects that hints name from the API server, some at a time, and each once for hints
 * that come together. A look that fails is repeated some times. */
export class Looks {
  readonly #options: LooksOptions;
  readonly #planned = new PlannedLooks();
  readonly #stopped = new AbortController();
  readonly #looked: Counter<'found'>;
  readonly #dropped: Counter;
  #running = 0;
  /** Runs while looks are planned. */
  #tick: NodeJS.Timeout | undefined;

  constructor(options: LooksOptions) {
    this.#options = options;
    const registers = [options.metrics];
    this.#looked = new Counter({
      name: 'sutler_hinted_looks_total',
      help: 'Reads of objects that hints named, by whether the object existed.',
      labelNames: ['found'],
      registers,
    });
    this.#dropped = new Counter({
      name: 'sutler_hints_dropped_total',
      help: 'Hints whose object was not read, because too many looks were planned or all failed.',
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

  add(hint: Hint): void {
    if (!this.#planned.add(hint, this.#options.clock.nowMs())) this.#dropped.inc();
    this.#start();
  }

  /** Forgets all looks that have not begun. */
  clear(): void {
    this.#planned.clear();
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
      this.#looked.inc({ found: String(object !== undefined) });
      onLook({ target, object });
    } catch (error) {
      if (!this.#planned.failed(target, clock.nowMs())) this.#dropped.inc();
      log.debug({ ...target, err: error }, 'could not read an object that a hint named');
    }
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
