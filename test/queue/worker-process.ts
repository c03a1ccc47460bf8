import { Registry } from 'prom-client';
import { Consumer } from '#src/queue/consumer.ts';
import { openRedis } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';

/** A worker process for recovery.test.ts to kill: takes one job, reports it, and never ends it. */
const [, , redisUrl = '', driver = ''] = process.argv;

const place = { prefix: 'csi', driver, log: silentLog };
void new Consumer({
  ...place,
  link: openRedis({ url: redisUrl, role: 'worker', log: silentLog }),
  driverState: { trouble: undefined, onChange: () => () => undefined, askNow: () => undefined },
  plain: openRedis({ url: redisUrl, role: 'plain', log: silentLog }).redis,
  kind: 'claim',
  concurrency: 1,
  name: 'killed-worker',
  backoff: { startMs: 10, maxMs: 1000 },
  lockMs: 1000,
  stalledCheckMs: 200,
  metrics: new Registry(),
  process: () => {
    process.stdout.write('running\n');
    return new Promise(() => undefined);
  },
});
