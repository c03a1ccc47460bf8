import type { ChangeNotice } from '../change-notice.ts';

/** Why an event is accepted and nothing is done about it. */
export type IgnoredReason = 'other-kind' | 'other-group' | 'other-type' | 'no-object' | 'dry-run';

/** What an event says. */
export type Verdict =
  | { readonly kind: 'hint'; readonly hint: ChangeNotice }
  | { readonly kind: 'ignored'; readonly reason: IgnoredReason };

/** What an event says, and how it is told from others. */
export interface ReadEvent {
  readonly verdict: Verdict;
  /** The same in each repetition of this event; undefined if it has no id. */
  readonly eventId: string | undefined;
}

export function ignore(reason: IgnoredReason): Verdict {
  return { kind: 'ignored', reason };
}

/** Joins the source and the id of an event, so that no other pair gives the same text. */
export function eventIdOf(source: string, id: string): string {
  return `${source.length} ${source} ${id}`;
}
