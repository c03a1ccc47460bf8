import { openSync, readFileSync, writeSync } from 'node:fs';

/** One event of the driver. A logged line survives the driver's SIGKILL, because it is written to
 * the file before the log function returns. */
export type CallEvent =
  /** A driver started; calls of earlier ones have ended. */
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
  /** A CreateVolume created a volume, or found it. */
  | {
      readonly event: 'made';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly volume: string;
      readonly handle: string;
    }
  /** A DeleteVolume deleted a volume, or found none. */
  | {
      readonly event: 'deleted';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly handle: string;
    }
  /** The driver answered. */
  | {
      readonly event: 'end';
      readonly pid: number;
      readonly call: number;
      readonly atMs: number;
      readonly code: string;
    }
  /** The caller cancelled, or the deadline passed; also logged after each `end`. */
  | { readonly event: 'cut'; readonly pid: number; readonly call: number; readonly atMs: number };

/** Opens a log for appending.
 * @returns writes one event */
export function openCallLog(path: string): (event: CallEvent) => void {
  const file = openSync(path, 'a');
  return (event) => {
    writeSync(file, `${JSON.stringify(event)}\n`);
  };
}

/** The events of a log in order. Skips a line that is incomplete because of a kill. */
export function readCallLog(path: string): readonly CallEvent[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line) => {
      try {
        return line === '' ? [] : [parseEvent(line)];
      } catch {
        return [];
      }
    });
}

/** @throws Error for a line that openCallLog did not write completely */
function parseEvent(line: string): CallEvent {
  const event: unknown = JSON.parse(line);
  if (typeof event !== 'object' || event === null || !('event' in event))
    throw new Error('not an event of the call log');
  return event as CallEvent;
}

/** The number of calls under way, according to the log. */
export function underWay(events: readonly CallEvent[]): number {
  const open = new Set<number>();
  for (const event of events) {
    if (event.event === 'boot') open.clear();
    else if (event.event === 'start') open.add(event.call);
    else if (event.event === 'end') open.delete(event.call);
  }
  return open.size;
}
