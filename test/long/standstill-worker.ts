import { Registry } from 'prom-client';
import { Consumer } from '#src/queue/consumer.ts';
import { openWorkerConnection } from '#src/queue/connections.ts';
import { openRedis } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';

/** A worker process for heartbeat.test.ts. Its event loop stands still for `stillMs` again and
 * again, and goes on for `pauseMs` in between. Each run writes the name of its claim to standard
 * output; then the job waits for as many milliseconds as the name says. */
const [, , redisUrl = '', driver = '', stillMs = '', pauseMs = ''] = process.argv;

const place = { prefix: 'csi', driver, log: silentLog };
void new Consumer({
  ...place,
  connection: openWorkerConnection({ ...place, redisUrl }),
  plain: openRedis({ url: redisUrl, role: 'plain', log: silentLog }).redis,
  kind: 'claim',
  concurrency: 10,
  name: 'standstill-worker',
  backoff: { startMs: 10, maxMs: 1000 },
  lockMs: 60_000,
  stalledCheckMs: 60_000,
  metrics: new Registry(),
  process: ({ name }) => {
    process.stdout.write(`${name}\n`);
    return Promise.resolve({ kind: 'later', reason: 'waits', delayMs: Number(name) });
  },
});

const never = new Int32Array(new SharedArrayBuffer(4));
setTimeout(function standStill() {
  Atomics.wait(never, 0, 0, Number(stillMs));
  setTimeout(standStill, Number(pauseMs));
}, 1_000);
