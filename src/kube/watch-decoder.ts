import { StringDecoder } from 'node:string_decoder';
import { excerpt, isFields, parseJson } from '../runtime/json.ts';
import { unansweredError } from './kube-error.ts';

const EVENT_TYPES = ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'] as const;

/** One line of a watch. An ERROR's object is a Status; a BOOKMARK's has only metadata. */
export interface WatchEvent {
  readonly type: (typeof EVENT_TYPES)[number];
  readonly object: unknown;
}

/** A longer line is an error. etcd limits objects to 1.5 MB. */
const MAX_LINE_LENGTH = 16 * 1024 * 1024;

/** Decodes a stream of bytes into events, one per line. Drops an unfinished line at the end of the
 * stream; the next watch brings its event again.
 * @param title  of the call, for errors
 * @returns      takes the next bytes; throws KubeError if a line is not an event */
export function decodeWatch(
  title: string,
  onEvent: (event: WatchEvent) => void,
): (bytes: Buffer) => void {
  // A character may be split over two pieces.
  const decoder = new StringDecoder('utf8');
  let rest = '';
  return (bytes) => {
    const lines = (rest + decoder.write(bytes)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line !== '') onEvent(toEvent(title, line));
    if (rest.length > MAX_LINE_LENGTH) throw noEvent(title, rest);
  };
}

function toEvent(title: string, line: string): WatchEvent {
  const value = parseJson(line);
  if (isEvent(value)) return value;
  throw noEvent(title, line);
}

function noEvent(title: string, line: string): Error {
  return unansweredError(title, 'Undecodable', `not a watch event: ${excerpt(line)}`);
}

function isEvent(value: unknown): value is WatchEvent {
  return isFields(value) && 'object' in value && EVENT_TYPES.some((type) => type === value['type']);
}
