import type { IncomingMessage } from 'node:http';
import { RequestProblem, unavailable } from './problem.ts';

const FIRST_BYTES = 16 * 1024;

/** A body that is being received. */
interface Receiving {
  /** Memory for it. */
  bytes: number;
  readonly refuse: (problem: RequestProblem) => void;
}

/** Receives bodies in bounded memory. If all bodies together need more, it refuses the oldest one,
 * so that a slow sender can't keep others out. */
export class BodyReceiver {
  readonly #maxTotalBytes: number;
  #totalBytes = 0;
  /** The oldest first. */
  readonly #receiving = new Set<Receiving>();

  constructor(maxTotalBytes: number) {
    this.#maxTotalBytes = maxTotalBytes;
  }

  /** Receives the bytes of a body. The server limits the time.
   * @throws RequestProblem; an Error if the client ends the connection */
  async receive(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
    const tooLarge = new RequestProblem(413, `the body may have ${maxBytes} bytes`, 'body');
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge;
    // Copies parts as they arrive: a list of many tiny parts would take a hundred times their size.
    let body = Buffer.allocUnsafe(0);
    let length = 0;
    let entry: Receiving | undefined;
    try {
      return await new Promise<Buffer>((resolve, reject) => {
        const receiving = (entry = { bytes: 0, refuse: reject });
        this.#receiving.add(receiving);
        request.on('data', (part: Buffer) => {
          if (length + part.length > maxBytes) return reject(tooLarge);
          if (length + part.length > body.length) {
            const bytes = Math.max(FIRST_BYTES, 2 * body.length, length + part.length);
            body = Buffer.concat([body.subarray(0, length)], Math.min(bytes, maxBytes));
            this.#grow(receiving, body.length);
          }
          length += part.copy(body, length);
        });
        request.once('end', () => resolve(body.subarray(0, length)));
        request.once('close', () => reject(new Error('the client ended the connection')));
      });
    } finally {
      request.removeAllListeners('data');
      if (entry !== undefined) this.#drop(entry);
    }
  }

  #grow(receiving: Receiving, bytes: number): void {
    this.#totalBytes += bytes - receiving.bytes;
    receiving.bytes = bytes;
    for (const oldest of this.#receiving) {
      if (this.#totalBytes <= this.#maxTotalBytes) return;
      oldest.refuse(unavailable('too many large requests at once: try again'));
      this.#drop(oldest);
    }
  }

  #drop(receiving: Receiving): void {
    if (this.#receiving.delete(receiving)) this.#totalBytes -= receiving.bytes;
  }
}
