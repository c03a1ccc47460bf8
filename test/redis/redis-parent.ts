import { startRedisServer } from '#src/redis/server.ts';
import { silentLog } from '#src/runtime/log.ts';

/** A process that server.test.ts kills: starts a Redis, prints its URL, and runs on. */
const [, , folder = ''] = process.argv;
const { url } = await startRedisServer({ folder, log: silentLog });
process.stdout.write(`${url}\n`);
setInterval(() => undefined, 60_000);
