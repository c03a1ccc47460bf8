import { objectId } from '../../queue/dependency-index.ts';
import type { ChangeNotice } from '../../webhooks/notices.ts';

/** An object to look at. */
export type Target = Pick<ChangeNotice, 'resource' | 'namespace' | 'name'>;

/** When to look after an early hint: usually the object is stored by the first time, and after a
 * slow admission by a later one. */
const EARLY_MS = [100, 1_000, 5_000] as const;
/** When to look again after a look has failed; if the last one fails, the hint is dropped. */
const FAILED_MS = [1_000, 5_000, 30_000] as const;
/** When to look again at an object that may not be read, to see whether that has changed. */
const REFUSED_MS = [30_000] as const;
/** Objects with looks that are not due yet; more are dropped. 200 bytes each. */
const MAX_PLANNED = 10_000;

/** Looks that are not due yet, the next one first. */
interface Plan {
  readonly target: Target;
  dueMs: readonly number[];
}

/** Which objects to look at, and when. Hints for one object are joined: each is followed by a look
 * that begins after it. */
export class PlannedLooks {
  /** By id of the object, oldest first. */
  readonly #due = new Map<string, Target>();
  readonly #planned = new Map<string, Plan>();
  readonly #running = new Set<string>();
  /** Objects whose last look failed. */
  readonly #failed = new Set<string>();

  /** Objects to look at now. */
  get due(): number {
    return this.#due.size;
  }

  /** Objects with looks that are not due yet. */
  get planned(): number {
    return this.#planned.size;
  }

  /** @returns false if the hint was dropped, because too many looks are planned */
  add({ isEarly, ...target }: ChangeNotice, nowMs: number): boolean {
    const id = objectId(target);
    this.#failed.delete(id);
    if (isEarly) return this.#plan(id, target, { nowMs, afterMs: EARLY_MS });
    this.#due.set(id, target);
    return true;
  }

  /** The next object to look at; `done` or `failed` must follow. */
  take(): Target | undefined {
    for (const [id, target] of this.#due) {
      if (this.#running.has(id)) continue;
      this.#due.delete(id);
      this.#running.add(id);
      return target;
    }
    return undefined;
  }

  done(target: Target): void {
    const id = objectId(target);
    this.#running.delete(id);
    this.#failed.delete(id);
  }

  /** Plans other looks.
   * @returns false if there is no room to plan them, or if all have failed */
  failed(target: Target, nowMs: number): boolean {
    const id = objectId(target);
    this.#running.delete(id);
    if (this.#planned.has(id) || this.#due.has(id)) return true;
    if (this.#failed.delete(id)) return false;
    if (!this.#plan(id, target, { nowMs, afterMs: FAILED_MS })) return false;
    this.#failed.add(id);
    return true;
  }

  /** Forgets the other looks of an object that may not be read.
   * @param isRepeated  whether to look once more, in half a minute
   * @returns whether that is planned */
  refused(target: Target, nowMs: number, isRepeated: boolean): boolean {
    const id = objectId(target);
    this.done(target);
    this.#planned.delete(id);
    return isRepeated && this.#plan(id, target, { nowMs, afterMs: REFUSED_MS });
  }

  /** Makes planned looks due whose time has come. Goes through all plans. */
  collectDue(nowMs: number): void {
    for (const [id, plan] of this.#planned) {
      const [nextMs = 0] = plan.dueMs;
      if (nextMs > nowMs) continue;
      this.#due.set(id, plan.target);
      plan.dueMs = plan.dueMs.filter((dueMs) => dueMs > nowMs);
      if (plan.dueMs.length === 0) this.#planned.delete(id);
    }
  }

  /** Forgets all looks but those under way. */
  clear(): void {
    this.#due.clear();
    this.#planned.clear();
    this.#failed.clear();
  }

  /** A look that is due soon stays where it is, so that hints one after the other do not put it off
   * for ever. */
  #plan(
    id: string,
    target: Target,
    { nowMs, afterMs }: { readonly nowMs: number; readonly afterMs: readonly number[] },
  ): boolean {
    const earlier = this.#planned.get(id);
    if (earlier === undefined && this.#planned.size >= MAX_PLANNED) return false;
    const times = afterMs.map((ms) => nowMs + ms);
    const first = Math.min(earlier?.dueMs[0] ?? Infinity, times[0] ?? Infinity);
    this.#planned.set(id, { target, dueMs: [first, ...times.slice(1)] });
    return true;
  }
}
