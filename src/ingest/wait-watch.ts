import { Counter } from 'prom-client';
import type { Registry } from 'prom-client';
import type { WaitList } from '../queue/wait-list.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';

export interface WaitWatchOptions {
  readonly waits: Pick<WaitList, 'since' | 'promote'>;
  /** The version of an object now, '' = it is not there; undefined: nobody here watches it, or not
   * long enough to know. */
  readonly versionOf: (object: string) => string | undefined;
  /** Told after each look: every object that some key waits for. */
  readonly onWaiting?: (objects: ReadonlySet<string>) => void;
  /** Asked each time, right before something is woken. */
  readonly isLeading: () => boolean;
  readonly driver: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  /** Time between two looks at what began to wait. */
  readonly periodMs?: number;
}

/** Wakes keys whose object changed. */
export interface WaitWatch {
  /** An object came, changed or went. */
  changed(object: string): void;
  stop(): Promise<void>;
}

/** A wake-up that helped nobody, so far: keys wait again for the version that they were woken from.
 */
interface Vain {
  /** The version of the object when they were woken. */
  readonly current: string;
  readonly tries: number;
  readonly notBeforeMs: number;
}

/** Pauses between wake-ups in vain. A worker's own view may be behind for a moment, or this one's
 * for long. */
const VAIN_START_MS = 1_000;
const VAIN_MAX_MS = 300_000;
const PERIOD_MS = 1_000;
/** Looks from one look at everything to the next: what ended its wait some other way is forgotten,
 * and a lost answer is made good. */
const LOOKS_PER_REVIEW = 60;

/** Compares what keys wait for with what is there: at each event of an object, and each second for
 * the keys that began to wait since. So a change is found whether it comes before or after the
 * parking, and by a new leader too. */
export function startWaitWatch(options: WaitWatchOptions): WaitWatch {
  const { waits, clock, log } = options;
  const woken = new Counter({
    name: 'sutler_keys_woken_total',
    help: 'Parked keys that were run because their object changed.',
    labelNames: ['driver'],
    registers: [options.metrics],
  });
  woken.inc({ driver: options.driver }, 0);
  const stopped = new AbortController();
  let pause = new AbortController();
  /** By object, the versions that keys saw. */
  const seen = new Map<string, Set<string>>();
  /** By group: what waits again is not woken again at once, since a run may cost a call of the
   * driver. */
  const vain = new Map<string, Vain>();
  /** Objects to compare at the next turn. */
  const due = new Set<string>();
  let position = 0;
  let looks = 0;

  const look = async (): Promise<void> => {
    if (looks % LOOKS_PER_REVIEW === 0) {
      position = 0;
      seen.clear();
      for (const [group, { notBeforeMs }] of vain)
        if (notBeforeMs + VAIN_MAX_MS < clock.nowMs()) vain.delete(group);
    }
    const found = await waits.since(position);
    position = found.position;
    looks += 1;
    for (const { object, seen: version } of found.waiting) {
      const versions = seen.get(object);
      if (versions === undefined) seen.set(object, new Set([version]));
      else versions.add(version);
      due.add(object);
    }
    options.onWaiting?.(new Set(seen.keys()));
  };
  const compare = async (object: string): Promise<void> => {
    const current = options.versionOf(object);
    for (const version of seen.get(object) ?? []) {
      if (current === undefined) {
        // Its watch has not told yet; asked again at the next turn.
        due.add(object);
        return;
      }
      if (version === current || !options.isLeading()) continue;
      const group = `${object}@${version}`;
      const before = vain.get(group);
      const isAgain = before?.current === current;
      const nowMs = clock.nowMs();
      if (isAgain && nowMs < before.notBeforeMs) {
        due.add(object);
        continue;
      }
      const result = await waits.promote({ object, seen: version }, nowMs);
      if (result.promoted > 0) {
        const tries = isAgain ? before.tries + 1 : 0;
        vain.set(group, {
          current,
          tries,
          notBeforeMs: nowMs + Math.min(VAIN_MAX_MS, VAIN_START_MS * 2 ** tries),
        });
        woken.inc({ driver: options.driver }, result.promoted);
        log.info(
          { object, keys: result.promoted },
          'an object changed: what waited for it runs now',
        );
      }
      // A run that is under way may have read the object before the change and be about to park.
      if (result.running > 0) due.add(object);
      else forget(object, version);
    }
  };
  const forget = (object: string, version: string): void => {
    const versions = seen.get(object);
    versions?.delete(version);
    if (versions?.size === 0) seen.delete(object);
  };
  const turn = async (): Promise<void> => {
    if (!options.isLeading()) {
      seen.clear();
      due.clear();
      looks = 0;
      options.onWaiting?.(new Set());
      return;
    }
    await look();
    const objects = [...due];
    due.clear();
    for (const object of objects) await compare(object);
  };

  const loop = async (): Promise<void> => {
    while (!stopped.signal.aborted) {
      pause = new AbortController();
      await turn().catch((error: unknown) =>
        log.debug({ err: error }, 'could not look who waits; looking again'),
      );
      if (!stopped.signal.aborted) await clock.sleep(options.periodMs ?? PERIOD_MS, pause.signal);
    }
  };
  const running = loop();
  return {
    changed(object) {
      if (!seen.has(object)) return;
      due.add(object);
      pause.abort('changed');
    },
    async stop() {
      stopped.abort('stopped');
      pause.abort('stopped');
      await running;
    },
  };
}
