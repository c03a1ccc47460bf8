import { openSync, readFileSync, writeSync } from 'node:fs';

/** One thing that the driver saw or did. A line is in the kernel's hands when log() returns, so
 * that it survives the driver's SIGKILL. */
export type CallEvent =
  /** A driver came up; calls of those before it are dead. */
  | { readonly event: 'boot'; readonly pid: number; readonly atMs: number }
  | {
      readonly event: 'start';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly method: 'CreateVolume' | 'DeleteVolume';
      /** Name for a creation, handle for a deletion. */
      readonly volume: string;
    }
  /** There is a volume of that name now, or there was. */
  | {
      readonly event: 'made';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly volume: string;
      readonly handle: string;
    }
  /** There is no volume of that handle now. */
  | {
      readonly event: 'deleted';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly handle: string;
    }
  /** The driver has answered. */
  | {
      readonly event: 'end';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly code: string;
    }
  /** The caller gave up, or the deadline passed; also comes after each end. */
  | { readonly event: 'cut'; readonly pid: number; readonly call: number; readonly atMs: number };

/** Appends to a log. */
export function openCallLog(path: string): (event: CallEvent) => void {
  const file = openSync(path, 'a');
  return (event) => {
    writeSync(file, `${JSON.stringify(event)}\n`);
  };
}

/** The events of a log in order; a line that a kill cut short is left out. */
export function readCallLog(path: string): readonly CallEvent[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line) => {
      try {
        // Written by log() of this very version.
        return line === '' ? [] : [JSON.parse(line) as CallEvent];
      } catch {
        return [];
      }
    });
}

/** How many calls the driver is at, as far as the log tells. */
export function underWay(events: readonly CallEvent[]): number {
  const open = new Set<number>();
  for (const event of events) {
    if (event.event === 'boot') open.clear();
    else if (event.event === 'start') open.add(event.call);
    else if (event.event === 'end') open.delete(event.call);
  }
  return open.size;
}
