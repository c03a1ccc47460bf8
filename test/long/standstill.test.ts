import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { claimKey, QueueBench } from '../harness/queue.ts';
import { startTestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('a lone worker whose event loop stands still for 3 s again and again', () => {
  it('runs jobs that wait for 1 s and for 5 s when their waits have ended', async () => {
    const redis = await startTestRedis();
    const driver = 'still.example';
    const script = fileURLToPath(new URL('standstill-worker.js', import.meta.url));
    const args = [script, redis.url, driver, '3000', '300'];
    const worker = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const bench = new QueueBench(redis, driver);
    try {
      let names: readonly string[] = [];
      worker.stdout.setEncoding('utf8').on('data', (text: string) => {
        names = [...names, ...text.trim().split('\n')];
      });
      const countRuns = (wanted: string): number => names.filter((name) => name === wanted).length;
      const producer = bench.producer();
      producer.ensureQueued(claimKey('1000'));
      producer.ensureQueued(claimKey('5000'));
      // The event loop goes on every 3.3 s: the job of 1 s runs each time, that of 5 s every other
      // time. So the last of these runs comes after 13 s.
      await until(
        () => countRuns('1000') >= 3 && countRuns('5000') >= 3,
        'two waits of each length have ended',
        35_000,
      );
    } finally {
      worker.kill('SIGKILL');
      await once(worker, 'exit');
      await bench.close();
      await redis.close();
    }
  });
});
