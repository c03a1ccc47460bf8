import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { readProcesses, writeProcess } from '#src/redis/processes.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const PREFIX = 'csi';

describe('the processes of an installation', () => {
  let server: TestRedis;
  before(async () => (server = await startTestRedis()));
  after(() => server.close());

  it('are shown with what they say of themselves, those of other versions too', async () => {
    const ingest = { process: 'ingest', instance: 'b', version: '2', drivers: ['d'], lines: ['x'] };
    await writeProcess(server.redis, PREFIX, ingest);
    const entry = JSON.stringify({ process: 'ingest', version: '1', leads: ['d'], lines: ['y'] });
    await server.redis.hset(`${keyPrefix(PREFIX)}:processes`, 'a', `${Date.now()} ${entry}`);
    assert.deepEqual(await readProcesses(server.redis, PREFIX), [
      { process: 'ingest', instance: 'a', version: '1', drivers: [], lines: ['y'] },
      ingest,
    ]);
  });
});
