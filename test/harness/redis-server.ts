import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { type RedisServer, startRedisServer as startOnSocket } from '#src/redis/server.ts';
import { silentLog } from '#src/runtime/log.ts';
import { freePort } from './free-port.ts';

/** A Redis server on loopback. */
export interface TcpRedisServer extends RedisServer {
  readonly port: number;
}

/** Starts the Redis of src/redis/server.ts on a port of loopback, with a password.
 * @param o.port      of an earlier start; otherwise a free one
 * @param o.password  of an earlier start; otherwise random
 * @param o.dataDir   created if absent */
export async function startRedisServer(o: {
  readonly dataDir: string;
  readonly port?: number;
  readonly password?: string;
  readonly settings?: readonly string[];
}): Promise<TcpRedisServer> {
  const folder = resolve(o.dataDir);
  await mkdir(folder, { recursive: true });
  const password = o.password ?? randomBytes(18).toString('base64url');
  for (let attempt = 1; ; attempt += 1) {
    const port = o.port ?? (await freePort());
    const settings = [`port ${port}`, 'bind 127.0.0.1', `requirepass ${password}`];
    try {
      const server = await startOnSocket({
        folder,
        log: silentLog,
        settings: [...settings, ...(o.settings ?? [])],
      });
      return { ...server, url: `redis://:${password}@127.0.0.1:${port}`, port };
    } catch (error) {
      // Another process may have taken the free port before the server did.
      if (o.port !== undefined || attempt === 5) throw error;
    }
  }
}
