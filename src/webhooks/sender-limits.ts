import type { IncomingMessage } from 'node:http';
import QuickLRU from 'quick-lru';
import { TokenBucket } from '../runtime/token-bucket.ts';
import { RequestProblem } from './problem.ts';

/** Parts that a body of any size may have, and bytes that each further one must bring on average:
 * a chunk of a byte holds some hundred. */
const FREE_PARTS = 64;
const MIN_PART_BYTES = 128;

/** The memory for bodies that are being received. No sender may have more than half of it. */
export class BodyMemory {
  readonly #maxBytes: number;
  readonly #held = new Map<string, number>();
  #heldBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Receives the bytes of a body as they are. How long that may take, the server limits.
   * @param o.owner  for whom the memory is counted
   * @throws RequestProblem; an Error if the client ends the connection */
  async receive(
    request: IncomingMessage,
    o: { readonly maxBytes: number; readonly owner: string },
  ): Promise<Buffer> {
    const bytes = Number(request.headers['content-length'] ?? o.maxBytes);
    if (bytes > o.maxBytes) throw tooLarge(o.maxBytes);
    const held = this.#held.get(o.owner) ?? 0;
    if (held + bytes > this.#maxBytes / 2 || this.#heldBytes + bytes > this.#maxBytes)
      throw new RequestProblem({
        status: 503,
        detail: 'too many large requests at once: try again',
        retryAfterSeconds: 1,
      });
    this.#hold(o.owner, bytes);
    try {
      return await readBody(request, o.maxBytes);
    } finally {
      this.#hold(o.owner, -bytes);
    }
  }

  #hold(owner: string, bytes: number): void {
    this.#heldBytes += bytes;
    const held = (this.#held.get(owner) ?? 0) + bytes;
    if (held > 0) this.#held.set(owner, held);
    else this.#held.delete(owner);
  }
}

async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    parts.push(part);
    bytes += part.length;
    if (bytes > maxBytes) throw tooLarge(maxBytes);
    if (parts.length > FREE_PARTS + bytes / MIN_PART_BYTES)
      throw new RequestProblem({
        status: 400,
        detail: 'the body arrives in too many small parts',
        field: 'body',
      });
  }
  return Buffer.concat(parts, bytes);
}

function tooLarge(maxBytes: number): RequestProblem {
  const detail = `the body may have ${maxBytes} bytes`;
  return new RequestProblem({ status: 413, detail, field: 'body' });
}

/** A rate limit for each sender; beyond 5,000 those that were silent for longest are forgotten. */
export class SenderRates {
  readonly #rate: { readonly burst: number; readonly perSecond: number };
  readonly #buckets = new QuickLRU<string, TokenBucket>({ maxSize: 5_000 });

  constructor(rate: { readonly burst: number; readonly perSecond: number }) {
    this.#rate = rate;
  }

  of(sender: string, nowMs: number): TokenBucket {
    const bucket = this.#buckets.get(sender) ?? new TokenBucket({ ...this.#rate, nowMs });
    this.#buckets.set(sender, bucket);
    return bucket;
  }
}
