import type { Explanation } from './explain.ts';

/** Words, with names such as `ns/data-1` as one. */
const WORDS = /[\w-]+(?:[./][\w-]+)*/g;
/** UIDs, and hexadecimal ids such as drivers make. */
const IDS = /[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|\b[\da-f]{8,}\b/gi;
/** Numbers that are no part of a name: that of `5Gi`, not that of `fast-1`. */
const NUMBERS = /(?<![\w-])\d+/g;

/** What an object waits for, the same for all that wait for the same fault: the cause and its
 * sentence, without numbers, ids and the object's own names. */
export function faultOf({ object, cause }: Pick<Explanation, 'object' | 'cause'>): string {
  const name = object.slice(object.indexOf('/') + 1);
  const sentence = cause.sentence
    .replaceAll(WORDS, (word) => (word === name || word === object ? '*' : word))
    .replaceAll(IDS, '*')
    .replaceAll(NUMBERS, '0');
  return `${cause.name}: ${sentence}`;
}

/** Groups what is pending by fault: first the faults that somebody has to end, then the largest.
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
