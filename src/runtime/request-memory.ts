import { joinChunks } from './join-chunks.ts';

/** Chunks are copied together: a chunk of a byte holds some hundred, and the buffer of up to 64 KiB
 * in which it was received, whatever else that contains. */
const BLOCK_BYTES = 16 * 1024;
/** A large request gets larger blocks. The C library gives blocks of this size back to the system
 * as soon as they are free. */
const LARGE_BLOCK_BYTES = 256 * 1024;

/** The memory for requests that are being received, shared by all callers. Beyond `maxBytes` the
 * owner that holds most of it loses its newest request, so that no caller keeps out the others. */
export class RequestMemory {
  readonly #maxBytes: number;
  readonly #owners = new Map<unknown, { bytes: number; readonly buffers: Set<RequestBuffer> }>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Opens the buffer of one request.
   * @param owner   for whom the memory is counted: a caller's name, or its connection
   * @param onLost  called when the request has lost its memory to others */
  open(owner: unknown, onLost: () => void): RequestBuffer {
    const buffer = new RequestBuffer((bytes) => this.#count(owner, buffer, bytes), onLost);
    return buffer;
  }

  #count(owner: unknown, buffer: RequestBuffer, bytes: number): void {
    const held = this.#owners.get(owner) ?? { bytes: 0, buffers: new Set() };
    this.#owners.set(owner, held);
    held.bytes += bytes;
    this.#bytes += bytes;
    held.buffers.add(buffer);
    if (buffer.heldBytes === 0) held.buffers.delete(buffer);
    if (held.buffers.size === 0) this.#owners.delete(owner);
    if (bytes > 0) while (this.#bytes > this.#maxBytes) this.#takeFromLargest();
  }

  #takeFromLargest(): void {
    const largest = [...this.#owners.values()].reduce((a, b) => (b.bytes > a.bytes ? b : a));
    [...largest.buffers].at(-1)?.lose();
  }
}

/** The body of one request while it arrives. */
export class RequestBuffer {
  readonly #onChange: (bytes: number) => void;
  readonly #onLost: () => void;
  readonly #parts: Buffer[] = [];
  /** Where small chunks are copied to. */
  #block = Buffer.alloc(0);
  #blockBytes = 0;
  #heldBytes = 0;

  /** @param onChange  called with the number of bytes that it holds more than before */
  constructor(onChange: (bytes: number) => void, onLost: () => void) {
    this.#onChange = onChange;
    this.#onLost = onLost;
  }

  /** Memory that it holds. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  add(chunk: Buffer): void {
    for (let copied = 0; copied < chunk.length;) {
      if (this.#blockBytes === this.#block.length) this.#beginBlock(chunk.length);
      // The memory was lost just now.
      if (this.#block.length === 0) return;
      const bytes = chunk.copy(this.#block, this.#blockBytes, copied);
      this.#blockBytes += bytes;
      copied += bytes;
    }
  }

  /** Removes and returns the bytes. */
  take(): Buffer {
    this.#endBlock();
    const body = joinChunks(this.#parts);
    this.clear();
    return body;
  }

  /** Removes the bytes. */
  clear(): void {
    const bytes = this.#heldBytes;
    if (bytes === 0) return;
    this.#parts.length = 0;
    this.#block = Buffer.alloc(0);
    this.#blockBytes = 0;
    this.#heldBytes = 0;
    this.#onChange(-bytes);
  }

  /** Removes the bytes and reports it. */
  lose(): void {
    this.clear();
    this.#onLost();
  }

  /** The first block fits its chunk: most requests are one chunk. */
  #beginBlock(bytes: number): void {
    const isFirst = this.#parts.length === 0 && this.#blockBytes === 0;
    this.#endBlock();
    const next = this.#heldBytes < LARGE_BLOCK_BYTES ? BLOCK_BYTES : LARGE_BLOCK_BYTES;
    this.#block = Buffer.allocUnsafeSlow(isFirst ? bytes : next);
    this.#hold(this.#block.length);
  }

  #endBlock(): void {
    if (this.#blockBytes > 0) this.#parts.push(this.#block.subarray(0, this.#blockBytes));
    this.#block = Buffer.alloc(0);
    this.#blockBytes = 0;
  }

  #hold(bytes: number): void {
    this.#heldBytes += bytes;
    this.#onChange(bytes);
  }
}
