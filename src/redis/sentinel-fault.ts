import { connect as connectPlaintext } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { RedisSettings } from './url.ts';

const ANSWER_MS = 2_000;

/** Whether ioredis says that no Sentinel can be reached, when each of them has named a
 * master that could not be connected to, as in a failover. */
export function hasNoCause(error: Error): boolean {
  return /sentinels are unreachable/.test(error.message) && !error.message.includes('Last error');
}

/** Whether ioredis reports that it reached no Sentinel, but not why. */
export function isUnexplained(error: Error): boolean {
  return /sentinels are unreachable.*Connection is closed/.test(error.message);
}

/** Connects to each Sentinel to learn what is wrong with the first that does not answer: ioredis
 * drops the error of a connection to a Sentinel. */
export async function findSentinelFault(settings: RedisSettings): Promise<Error | undefined> {
  for (const sentinel of settings.sentinels ?? []) {
    const fault = await faultOf(sentinel, settings);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function faultOf(
  { host = '127.0.0.1', port = 26_379 }: { readonly host?: string; readonly port?: number },
  { sentinelTLS }: RedisSettings,
): Promise<Error | undefined> {
  return new Promise((resolve) => {
    const socket =
      sentinelTLS === undefined
        ? connectPlaintext({ host, port })
        : connectTls({ host, port, ...sentinelTLS });
    const end = (fault?: Error): void => {
      socket.destroy();
      resolve(fault);
    };
    const timeout = Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' });
    socket.setTimeout(ANSWER_MS, () => end(timeout));
    socket.once('error', end);
    socket.once('close', () => end(new Error('it ends the connection')));
    // Any answer will do, a refused login too.
    socket.once('data', () => end());
    socket.write('PING\r\n');
  });
}
