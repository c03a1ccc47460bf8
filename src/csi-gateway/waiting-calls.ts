/** A call that waits for a slot. */
export interface WaitingCall {
  /** Method path. */
  readonly path: string;
  /** Connection of its caller. */
  readonly connection: object;
  /** Size of its request. */
  readonly bytes: number;
  /** Aborts when the caller has cancelled the call or is gone. */
  readonly signal: AbortSignal;
}

interface Waiter<Slot> {
  readonly call: WaitingCall;
  readonly end: (slot: Slot | undefined) => void;
}

/** What a waiting call holds beside its request: its stream, a timer and buffers. */
const STREAM_BYTES = 25_000;

/** The calls that wait until the limit of their method leaves a slot. Connections take turns, and
 * the calls of one connection keep their order. Memory is bounded: beyond `maxBytes` the connection
 * that holds most of it loses its newest call, so that no caller keeps out the others. */
export class WaitingCalls<Slot> {
  readonly #maxBytes: number;
  readonly #onChange: (count: number) => void;
  /** In the order of their arrival. */
  readonly #waiters = new Set<Waiter<Slot>>();
  /** When a call of a connection had its turn last, as a number of turns. */
  readonly #lastTurn = new WeakMap<object, number>();
  #turns = 0;
  #bytes = 0;

  constructor(options: {
    readonly maxBytes: number;
    /** Called with the number of calls that wait now. */
    readonly onChange: (count: number) => void;
  }) {
    this.#maxBytes = options.maxBytes;
    this.#onChange = options.onChange;
  }

  /** Waits for the call's turn.
   * @returns the slot that it was given; undefined after `ms`, when its signal aborted, or when it
   *   lost its place */
  wait(call: WaitingCall, ms: number): Promise<Slot | undefined> {
    return new Promise((resolve) => {
      const waiter: Waiter<Slot> = {
        call,
        end: (slot) => {
          clearTimeout(timer);
          call.signal.removeEventListener('abort', giveUp);
          this.#waiters.delete(waiter);
          this.#count(-bytesOf(call));
          resolve(slot);
        },
      };
      const giveUp = (): void => waiter.end(undefined);
      const timer = setTimeout(giveUp, ms);
      call.signal.addEventListener('abort', giveUp, { once: true });
      this.#waiters.add(waiter);
      this.#count(bytesOf(call));
      if (call.signal.aborted) giveUp();
      while (this.#bytes > this.#maxBytes) this.#endNewestOfLargest();
    });
  }

  /** Gives the next call of a method a slot, if one waits.
   * @param takeSlot  called only then */
  giveNext(path: string, takeSlot: () => Slot): boolean {
    const turnOf = ({ call }: Waiter<Slot>): number => this.#lastTurn.get(call.connection) ?? 0;
    let next: Waiter<Slot> | undefined;
    for (const waiter of this.#waiters) {
      if (waiter.call.path !== path) continue;
      if (next === undefined || turnOf(waiter) < turnOf(next)) next = waiter;
    }
    if (next === undefined) return false;
    this.#lastTurn.set(next.call.connection, (this.#turns += 1));
    next.end(takeSlot());
    return true;
  }

  /** Ends every wait. */
  endAll(): void {
    for (const waiter of this.#waiters) waiter.end(undefined);
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    this.#onChange(this.#waiters.size);
  }

  #endNewestOfLargest(): void {
    const held = new Map<object, number>();
    for (const { call } of this.#waiters)
      held.set(call.connection, (held.get(call.connection) ?? 0) + bytesOf(call));
    const [largest] = [...held].reduce((a, b) => (b[1] > a[1] ? b : a));
    [...this.#waiters].findLast(({ call }) => call.connection === largest)?.end(undefined);
  }
}

function bytesOf({ bytes }: WaitingCall): number {
  return STREAM_BYTES + bytes;
}
