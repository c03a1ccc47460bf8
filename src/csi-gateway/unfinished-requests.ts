import { constants, type Http2Session, type ServerHttp2Stream } from 'node:http2';
import { ServerInterceptingCall, type ServerInterceptor } from '@grpc/grpc-js';

/** What a request holds besides its body: a stream and its headers. */
const REQUEST_BYTES = 16 * 1024;
/** What a part of a body holds besides its bytes. */
const PART_BYTES = 256;

/** Bounds the memory of requests that have begun and not ended, over all connections. When they
 * hold more than the limit, the connection that holds most of it is ended: who sends whole requests
 * keeps theirs. A request that is answered before its end is reset, because the rest is read by
 * nobody and what came is kept until the stream closes. */
export class UnfinishedRequests {
  readonly #limitBytes: number;
  readonly #onEnd: (from: string | undefined) => void;
  readonly #heldBytes = new Map<Http2Session, number>();
  #totalBytes = 0;

  /** @param onEnd  called when a connection from this address is ended */
  constructor(limitBytes: number, onEnd: (from: string | undefined) => void) {
    this.#limitBytes = limitBytes;
    this.#onEnd = onEnd;
  }

  /** Sees each request when its headers are there. */
  readonly interceptor: ServerInterceptor = (_method, call) => {
    // The one thing of grpc-js that is used and not public: it has no other way to a request whose
    // message is not complete.
    const stream = Reflect.get(call, 'stream') as ServerHttp2Stream;
    this.#follow(stream);
    let messages = 0;
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMessage: (message, pass) => {
            messages += 1;
            if (messages === 1) pass(message);
            // No client of gRPC sends it, and 13,000 empty ones fit into one window.
            else if (stream.session !== undefined) this.#endConnection(stream.session);
          },
        }),
    });
  };

  #follow(stream: ServerHttp2Stream): void {
    const { session } = stream;
    if (session === undefined) return;
    let bytes = REQUEST_BYTES;
    const end = (): void => {
      this.#change(session, -bytes);
      bytes = 0;
    };
    stream.on('data', ({ length }: Buffer) => {
      bytes += length + PART_BYTES;
      this.#change(session, length + PART_BYTES);
    });
    stream.once('end', end).once('close', end);
    stream.once('finish', () => {
      if (!stream.readableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
    });
    this.#change(session, bytes);
  }

  #change(session: Http2Session, bytes: number): void {
    if (session.destroyed) return this.#forget(session);
    const heldBytes = (this.#heldBytes.get(session) ?? 0) + bytes;
    this.#totalBytes += bytes;
    if (heldBytes > 0) this.#heldBytes.set(session, heldBytes);
    else this.#heldBytes.delete(session);
    if (this.#totalBytes > this.#limitBytes) this.#endLargest();
  }

  #forget(session: Http2Session): void {
    this.#totalBytes -= this.#heldBytes.get(session) ?? 0;
    this.#heldBytes.delete(session);
  }

  #endLargest(): void {
    const [largest] = [...this.#heldBytes].reduce((a, b) => (a[1] >= b[1] ? a : b));
    this.#endConnection(largest);
  }

  #endConnection(session: Http2Session): void {
    this.#onEnd(session.socket?.remoteAddress);
    session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
    this.#forget(session);
  }
}
