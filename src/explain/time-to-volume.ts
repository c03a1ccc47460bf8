import type { RedisPlace } from '../redis/key-prefix.ts';
import { inSeconds } from '../runtime/printable.ts';
import { readRecent } from './recent.ts';

/* How long the last claims of a driver took until they had a volume, by the notes of their runs. */

/** A claim that got a volume. */
export interface Provisioned {
  readonly className: string;
  /** Unix ms. */
  readonly atMs: number;
  /** From when its job was added. */
  readonly tookMs: number;
  readonly runs: number;
}

/** The note of a run that stored a PersistentVolume. */
export function provisionedNote(volume: string, className: string): string {
  return `volume ${volume} of class ${className}`;
}

const NOTE = /^volume \S+ of class (.*)$/;

/** The last claims that got a volume. Rejects while Redis can't be reached. */
export async function readProvisioned(place: RedisPlace): Promise<readonly Provisioned[]> {
  const recent = await readRecent(place);
  return recent.flatMap(({ note, addedMs, finishedMs: atMs, runs }) => {
    const className = NOTE.exec(note)?.[1];
    return className === undefined ? [] : [{ className, atMs, tookMs: atMs - addedMs, runs }];
  });
}

/** The time in which half of some claims had a volume, and that of 99 %; undefined for none. */
export function quantiles(
  provisioned: readonly Provisioned[],
): readonly [halfMs: number, mostMs: number] | undefined {
  const times = provisioned.map(({ tookMs }) => tookMs).sort((a, b) => a - b);
  const [halfMs, mostMs] = [0.5, 0.99].map((part) => times[Math.ceil(part * times.length) - 1]);
  return halfMs === undefined || mostMs === undefined ? undefined : [halfMs, mostMs];
}

/** How long claims of a class take that do not fail, for people; '' if none is known. A claim that
 * needed several runs says nothing about that. */
export function usualTimes(provisioned: readonly Provisioned[], className: string): string {
  const usual = provisioned.filter((each) => each.runs === 1 && each.className === className);
  return describeTimes(usual, ' that took one run');
}

/** For people; '' for none.
 * @param which  which claims these are */
export function describeTimes(provisioned: readonly Provisioned[], which = ''): string {
  const found = quantiles(provisioned);
  if (found === undefined) return '';
  const [half, most] = found.map(inSeconds);
  const last = `the last ${provisioned.length}${which}`;
  return `half of ${last} had a volume within ${half}, 99 % within ${most}`;
}
