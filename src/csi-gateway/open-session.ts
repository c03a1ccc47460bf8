import { connect as connectHttp2, type ClientHttp2Session } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import type { Address } from '../runtime/address.ts';
import { timerMs } from '../runtime/clock.ts';

/** Flow-control window of the connection, and of each answer on it. */
const WINDOW_BYTES = 4 * 1024 * 1024;

/** A session whose peer has spoken HTTP/2, or the reason why there is none. A peer that only
 * accepts is not connected: a call sent to it would be ambiguous.
 * @param o.timeoutMs  for the whole set-up
 * @param o.signal     ends the attempt, and the session later on */
export function openSession(
  address: Address,
  o: { readonly timeoutMs: number; readonly maxMessageBytes: number; readonly signal: AbortSignal },
): Promise<ClientHttp2Session | string> {
  return new Promise((resolve) => {
    const session = connectHttp2('http://localhost', {
      createConnection: () =>
        address.kind === 'unix'
          ? connectSocket(address.path)
          : connectSocket({ host: address.host, port: address.port, noDelay: true }),
      settings: { enablePush: false, initialWindowSize: WINDOW_BYTES },
      // Node's default of 10 MB a session would refuse streams when a few large answers arrive
      // together.
      maxSessionMemory: sessionMemoryMb(o.maxMessageBytes),
    });
    let failure: string | undefined;
    const timer = setTimeout(() => {
      failure = `it accepts connections but does not speak HTTP/2 (waited ${o.timeoutMs} ms)`;
      session.destroy();
    }, timerMs(o.timeoutMs));
    const stop = (): void => session.destroy();
    o.signal.addEventListener('abort', stop, { once: true });
    // Stays for the session's whole life: what an error means to a call, its stream says.
    session.on('error', (error) => (failure ??= error.message));
    session.once('close', () => {
      clearTimeout(timer);
      o.signal.removeEventListener('abort', stop);
      resolve(failure ?? 'the connection was closed');
    });
    session.once('remoteSettings', () => {
      clearTimeout(timer);
      session.setLocalWindowSize(WINDOW_BYTES);
      resolve(session);
    });
  });
}

/** Node's session memory limit, in its unit (MB), for messages of that size. */
export function sessionMemoryMb(maxMessageBytes: number): number {
  return Math.max(64, Math.ceil(maxMessageBytes / 1_000_000) * 4);
}
