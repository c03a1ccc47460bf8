import { setTimeout as delay } from 'node:timers/promises';
import { Duplex } from 'node:stream';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { PREFACE } from '../csi-frames.ts';
import { healthCheck } from './bodies.ts';
import type { Stranger } from './stranger.ts';

/* Attacks with connections that stay open. */

const REOPEN_MS = 100;
/** Connections opened at once, and the time between two bursts: the system drops more than a few
 * hundred that were not accepted yet, and repeats them only after a second. */
const BURST = 50;
const BURST_MS = 50;

/** Opens connections that each make one health check and stay open. */
export async function stayAfterOneCall(stranger: Stranger): Promise<void> {
  await keepOpen(stranger, async () => {
    const connection = await stranger.open();
    await connection.send(healthCheck(connection.newStream()));
    await connection.closed();
  });
}

/** Opens TCP connections that say nothing. */
export async function staySilent(stranger: Stranger): Promise<void> {
  await keepOpen(stranger, async () => closed(await stranger.openSocket()));
}

/** Opens connections that say half of what they must say first: half of a TLS ClientHello, or half
 * of HTTP/2's preface. */
export async function stayHalfway(stranger: Stranger): Promise<void> {
  const first = stranger.isTls ? await clientHello() : PREFACE;
  await keepOpen(stranger, async () => {
    const socket = await stranger.openSocket();
    socket.write(first.subarray(0, first.length / 2));
    await closed(socket);
  });
}

/** Keeps as many connections open as the stranger may have, until the attack is over.
 * @param open  opens one, and resolves or rejects once it is closed */
async function keepOpen(stranger: Stranger, open: () => Promise<void>): Promise<void> {
  const keepOne = async (_: unknown, index: number): Promise<void> => {
    await delay(Math.floor(index / BURST) * BURST_MS);
    while (!stranger.signal.aborted) {
      await open().catch(() => undefined);
      await delay(REOPEN_MS);
    }
  };
  await Promise.all(Array.from({ length: stranger.maxSockets }).map(keepOne));
}

async function closed(socket: Socket): Promise<void> {
  socket.resume();
  await new Promise((resolve) => socket.once('close', resolve));
}

/** The first bytes that a TLS client sends. */
function clientHello(): Promise<Buffer> {
  return new Promise((resolve) => {
    const wire = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, done) => {
        resolve(chunk);
        done();
      },
    });
    connectTls({ socket: wire, ALPNProtocols: ['h2'] }).on('error', () => undefined);
  });
}
