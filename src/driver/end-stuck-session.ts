import type { ClientHttp2Session } from 'node:http2';

const TICK_MS = 1_000;
/** SETTINGS frames that a driver has not acknowledged; Node ends a session with more than ten. */
const MAX_PENDING = 5;

/** Ends a session, and with it its calls as ambiguous, that writes nothing any more. nghttp2 gives
 * up a session whose peer sends a text of 64 KiB in its headers; Node (seen on 20) then neither
 * reads nor writes and reports nothing, so the calls would wait for their deadlines. A SETTINGS
 * frame that is not written shows it. (Some drivers end a connection over PING frames.) It is sent
 * while an earlier one is not acknowledged, too: the acknowledgement may be what is not read.
 * @param isBusy  whether calls are under way; otherwise nothing is sent */
export function endStuckSession(session: ClientHttp2Session, isBusy: () => boolean): void {
  /** Bytes that had been written before a frame was queued, in the tick before. */
  let writtenBefore: number | undefined;
  let pending = 0;
  const look = (): void => {
    if (session.destroyed) return;
    const { bytesWritten, bufferSize } = session.socket;
    if (bytesWritten === writtenBefore && bufferSize === 0)
      return session.destroy(new Error('it stood still, which a text of 64 KiB in a status does'));
    const maySend = isBusy() && pending < MAX_PENDING;
    writtenBefore = maySend ? bytesWritten : undefined;
    if (!maySend) return;
    pending += 1;
    session.settings({}, () => (pending -= 1));
  };
  const timer = setInterval(look, TICK_MS).unref();
  session.once('close', () => clearInterval(timer));
}
