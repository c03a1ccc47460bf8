/** Refused requests of one sender that may wait for their answer. */
const MAX_HELD = 16;
/** How long a sender waits for the answer to each of them. */
const TURN_MS = 250;

/** Requests of senders that send too much, while they wait for the refusal. Those of one sender
 * stand in line, so the answers to all that it sends cost little, however many connections it has
 * and however many requests it sends ahead. */
export class HeldRefusals {
  readonly #counts = new Map<string, number>();

  /** Takes the last place in the sender's line.
   * @returns for how many ms the refusal is to be held; undefined if the line is full */
  begin(sender: string): number | undefined {
    const count = (this.#counts.get(sender) ?? 0) + 1;
    if (count > MAX_HELD) return undefined;
    this.#counts.set(sender, count);
    return count * TURN_MS;
  }

  /** Leaves the line. */
  end(sender: string): void {
    const count = (this.#counts.get(sender) ?? 0) - 1;
    if (count > 0) this.#counts.set(sender, count);
    else this.#counts.delete(sender);
  }
}
