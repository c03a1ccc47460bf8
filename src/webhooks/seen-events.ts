import { createHash } from 'node:crypto';

/** How long ids are remembered: twice as long as a signed request may be repeated. */
const REMEMBER_MS = 600_000;
const MAX_PER_SENDER = 10_000;
const MAX_TOTAL = 50_000;

/** Ids of events whose hints were taken, by sender: no sender can have events of another one taken
 * for repetitions. Bounded by number too, so a repetition may be missed; then its hint is sent
 * again, which harms nobody. */
export class SeenEvents {
  /** By sender, then by a digest of the id: when it was taken. The oldest first. */
  readonly #senders = new Map<string, Map<string, number>>();
  #total = 0;

  has(sender: string, eventId: string, nowMs: number): boolean {
    const takenMs = this.#senders.get(sender)?.get(digestOf(eventId));
    return takenMs !== undefined && nowMs - takenMs < REMEMBER_MS;
  }

  /** To be called once the hint is safe: an event that was refused comes again with its id. */
  add(sender: string, eventId: string, nowMs: number): void {
    const seen = this.#senders.get(sender) ?? new Map<string, number>();
    const digest = digestOf(eventId);
    if (!seen.delete(digest)) this.#total += 1;
    seen.set(digest, nowMs);
    // The sender that was used last is last.
    this.#senders.delete(sender);
    this.#senders.set(sender, seen);
    for (const [first, takenMs] of seen) {
      if (seen.size <= MAX_PER_SENDER && nowMs - takenMs < REMEMBER_MS) break;
      this.#forget(sender, seen, first);
    }
    while (this.#total > MAX_TOTAL) this.#forgetOldest();
  }

  /** Forgets the oldest id of the sender that has been silent for longest. */
  #forgetOldest(): void {
    const [oldest] = this.#senders;
    const [sender, seen] = oldest ?? [];
    const [first] = seen?.keys() ?? [];
    if (sender === undefined || seen === undefined || first === undefined) return;
    this.#forget(sender, seen, first);
  }

  #forget(sender: string, seen: Map<string, number>, digest: string): void {
    if (seen.delete(digest)) this.#total -= 1;
    if (seen.size === 0) this.#senders.delete(sender);
  }
}

/** Of one length, however long the id. */
function digestOf(eventId: string): string {
  return createHash('sha256').update(eventId).digest('base64').slice(0, 22);
}
