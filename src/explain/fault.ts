import type { Explanation } from './explain.ts';

/** Words, with names such as `ns/data-1` as one. */
const WORDS = /[\w-]+(?:[./][\w-]+)*/g;
/** UIDs, and hexadecimal ids of drivers. */
const IDS = /[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|\b[\da-f]{8,}\b/gi;
/** Numbers outside names: in `5Gi`, not in `fast-1`. */
const NUMBERS = /(?<![\w-])\d+/g;

/** Identifies a fault, the same for all objects with that fault: the cause and its sentence,
 * without numbers, ids and the object's own names. */
export function faultOf({ object, cause }: Pick<Explanation, 'object' | 'cause'>): string {
  const name = object.slice(object.indexOf('/') + 1);
  const sentence = cause.sentence
    .replaceAll(WORDS, (word) => (word === name || word === object ? '*' : word))
    .replaceAll(IDS, '*')
    .replaceAll(NUMBERS, '0');
  return `${cause.name}: ${sentence}`;
}

/** Groups pending objects by fault: first the faults that somebody has to end, then the largest.
 * @param pending  the oldest first */
export function groupFaults<T extends Pick<Explanation, 'object' | 'cause'>>(
  pending: readonly T[],
): readonly (readonly [oldest: T, ...others: readonly T[]])[] {
  const groups = new Map<string, [T, ...T[]]>();
  for (const each of pending) {
    const fault = faultOf(each);
    const group = groups.get(fault);
    if (group === undefined) groups.set(fault, [each]);
    else group.push(each);
  }
  const fine = ([{ cause }]: readonly [T, ...unknown[]]): number => (cause.isFine ? 1 : 0);
  return [...groups.values()].sort((a, b) => fine(a) - fine(b) || b.length - a.length);
}
