import { startRedisServer } from '#src/redis/server.ts';
import { silentLog } from '#src/runtime/log.ts';

/** A process for redis-server.test.ts to kill: starts a Redis, says where, and stays. */
const [, , dataDir = ''] = process.argv;
const { url } = await startRedisServer({ dataDir, log: silentLog });
process.stdout.write(`${url}\n`);
setInterval(() => undefined, 60_000);
