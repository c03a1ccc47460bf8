/** Frames that a request of any size may have, and bytes that each further one must bring on
 * average. Callers fill their frames; a frame of one byte costs as much CPU as one of 16 KiB. */
const FREE_FRAMES = 1_024;
const MIN_FRAME_BYTES = 256;

/** Counts how a request arrives. */
export class Arrival {
  bytes = 0;
  frames = 0;
  /** Bytes that arrived after the call was answered. */
  discardedBytes = 0;

  add(chunk: Buffer): void {
    this.bytes += chunk.length;
    this.frames += 1;
  }

  /** Whether it arrives in needlessly many parts. */
  get isScattered(): boolean {
    return this.frames > FREE_FRAMES + this.bytes / MIN_FRAME_BYTES;
  }
}
