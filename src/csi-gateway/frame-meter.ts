/** Bytes before the first frame of a connection: "PRI * HTTP/2.0…" (RFC 9113 section 3.4). */
const PREFACE_BYTES = 24;
const HEAD_BYTES = 9;

/** What a frame costs, in units of about 1 µs of the gateway's CPU: each frame; a PING or SETTINGS
 * frame, which has to be answered; a HEADERS frame, which opens a call (and costs less here than it
 * takes: calls are what connections are for); header blocks, which have to be decoded; and the
 * copying of bytes. */
const FRAME_COST = 1;
const ANSWERED_FRAME_COST = 5;
const CALL_COST = 30;
const HEADER_BYTES_PER_UNIT = 64;
const BYTES_PER_UNIT = 256;

const HEADERS = 1;
const SETTINGS = 4;
const PUSH_PROMISE = 5;
const PING = 6;
const CONTINUATION = 9;

/** Follows the frames in the bytes of one HTTP/2 connection, and adds up what they cost. A flood of
 * empty frames is expensive although it has few bytes. */
export class FrameMeter {
  /** Bytes of the preface, or of the current frame's payload, that are still to come. */
  #restBytes = PREFACE_BYTES;
  /** What they cost. */
  #bytesPerUnit = Infinity;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headBytes = 0;

  /** Follows as much of a chunk as may be passed on: the frames that begin before their costs have
   * reached `credit`, and the rest of a frame that has begun.
   * @returns bytes of the chunk that were followed, and their cost in units */
  take(chunk: Buffer, credit: number): { readonly bytes: number; readonly cost: number } {
    let bytes = 0;
    let cost = 0;
    while (bytes < chunk.length) {
      if (this.#restBytes > 0) {
        const part = Math.min(this.#restBytes, chunk.length - bytes);
        this.#restBytes -= part;
        bytes += part;
        cost += part / this.#bytesPerUnit;
        continue;
      }
      if (this.#headBytes === 0 && cost >= credit) break;
      const part = chunk.copy(this.#head, this.#headBytes, bytes, bytes + this.#missingHeadBytes);
      this.#headBytes += part;
      bytes += part;
      if (this.#missingHeadBytes > 0) break;
      cost += this.#beginPayload();
    }
    return { bytes, cost };
  }

  get #missingHeadBytes(): number {
    return HEAD_BYTES - this.#headBytes;
  }

  /** @returns the cost of the frame whose head is complete, without its payload. That is counted as
   *   it arrives: a head may announce 16 MiB that never come. */
  #beginPayload(): number {
    this.#headBytes = 0;
    this.#restBytes = this.#head.readUIntBE(0, 3);
    const type = this.#head.readUInt8(3);
    const beginsCall = type === HEADERS || type === PUSH_PROMISE;
    const hasHeaders = beginsCall || type === CONTINUATION;
    this.#bytesPerUnit = hasHeaders ? HEADER_BYTES_PER_UNIT : BYTES_PER_UNIT;
    if (beginsCall) return FRAME_COST + CALL_COST;
    return type === SETTINGS || type === PING ? ANSWERED_FRAME_COST : FRAME_COST;
  }
}
