import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const LOOK_MS = 2_000;
/** Garbage that may lie about before it is worth some 20 ms. */
const WORTH_BYTES = 4 * 2 ** 20;
/** V8 gives pages back one collection after it has moved out of them, and only in a second one those that it kept for luck. */
const ROUNDS = 3;

/** Collects garbage when nothing is under way and the heap has grown: V8 looks only while a process allocates, so a burst's memory would stay
 * with a gateway that has nothing to do afterwards, beside a driver that could use it. Node has no call for this; the flag and a new context
 * are how its collector is reached.
 * @returns stops it */
export function collectWhenIdle(isIdle: () => boolean): () => void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  if (typeof collect !== 'function') return () => undefined;
  let keptBytes = getHeapStatistics().used_heap_size;
  let roundsLeft = 0;
  const timer = setInterval(() => {
    if (getHeapStatistics().used_heap_size > keptBytes + WORTH_BYTES) roundsLeft = ROUNDS;
    if (roundsLeft === 0 || !isIdle()) return;
    roundsLeft -= 1;
    collect();
    keptBytes = getHeapStatistics().used_heap_size;
  }, LOOK_MS);
  timer.unref();
  return () => clearInterval(timer);
}
