import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions } from 'node:tls';
import type { Address } from '../runtime/address.ts';
import { timerMs } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';

/** Flow-control window of the connection, and of each response. */
const WINDOW_BYTES = 4 * 1024 * 1024;

/** Most bytes of headers or of trailers, as announced to the peer. Most gRPC servers then reset a
 * call whose status is longer. A text of 64 KiB would make nghttp2 end the whole session. */
const MAX_HEADER_BYTES = 60 * 1024;

/** Opens an HTTP/2 session and waits for the peer's SETTINGS frame. Without it, a call to a peer
 * that only accepts connections would be ambiguous.
 * @returns the session, or the reason why there is none
 * @param options.timeoutMs  time for the whole set-up
 * @param options.signal     ends the attempt, and later the session
 * @param options.tls        plaintext if absent */
export function openSession(
  address: Address,
  options: {
    readonly timeoutMs: number;
    readonly maxMessageBytes: number;
    readonly signal: AbortSignal;
    readonly tls?: ConnectionOptions | undefined;
  },
): Promise<ClientHttp2Session | string> {
  const { timeoutMs, maxMessageBytes, signal, tls } = options;
  return new Promise((resolve) => {
    const session = connectHttp2('http://localhost', {
      createConnection: () => connect(address, tls),
      settings: {
        enablePush: false,
        initialWindowSize: WINDOW_BYTES,
        maxHeaderListSize: MAX_HEADER_BYTES,
      },
      maxSessionMemory: sessionMemoryMb(maxMessageBytes),
    });
    let failure: string | undefined;
    const timer = setTimeout(() => {
      failure = `it accepts connections but does not answer (waited ${timeoutMs} ms)`;
      session.destroy();
    }, timerMs(timeoutMs));
    const stop = (): void => session.destroy();
    signal.addEventListener('abort', stop, { once: true });
    // This listener stays, because a later error without one would end the process. Calls under way
    // get errors from their streams.
    session.on('error', (error) => (failure ??= textOf(error)));
    session.once('close', () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
      resolve(failure ?? 'the connection was closed');
    });
    session.once('remoteSettings', () => {
      clearTimeout(timer);
      session.setLocalWindowSize(WINDOW_BYTES);
      resolve(session);
    });
  });
}

function connect(address: Address, tls: ConnectionOptions | undefined): Socket {
  if (address.kind === 'unix') return connectSocket(address.path);
  const { host, port } = address;
  if (tls === undefined) return connectSocket({ host, port, noDelay: true });
  return connectTls({ ...tls, host, port, ALPNProtocols: ['h2'] }).setNoDelay(true);
}

/** Returns the reason for a lost connection. A host with several addresses has one for each. */
function textOf(error: Error): string {
  return error instanceof AggregateError ? error.errors.map(messageOf).join('; ') : error.message;
}

/** Computes Node's maxSessionMemory, in MB. With Node's default of 10 MB, it would refuse streams
 * when several large messages arrive together. */
function sessionMemoryMb(maxMessageBytes: number): number {
  return Math.max(64, Math.ceil(maxMessageBytes / 1_000_000) * 4);
}
