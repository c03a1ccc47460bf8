import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedisServer } from '#src/redis/server.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

describe('startRedisServer', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('listens on loopback only, with a password that is not in its arguments', async () => {
    assert.deepEqual(await redis.redis.config('GET', 'bind'), ['bind', '127.0.0.1']);
    const { password } = new URL(redis.url);
    assert.ok(password.length >= 20);
    assert.ok(!(await readFile(`/proc/${redis.pid}/cmdline`, 'utf8')).includes(password));
    const stranger = new Redis({
      port: redis.port,
      retryStrategy: () => null,
      maxRetriesPerRequest: 0,
      lazyConnect: true,
      disconnectTimeout: 100,
    });
    stranger.on('error', () => undefined);
    await assert.rejects(stranger.connect().then(() => stranger.get('x')));
    stranger.disconnect();
  });

  it('keeps its data when it is killed and started again in the same folder', async () => {
    await redis.redis.set('k', 'v');
    await redis.kill();
    await redis.start();
    assert.equal(await redis.redis.get('k'), 'v');
  });

  it('ends on request, and reports how', async () => {
    const server = await startRedisServer({ dataDir: `${redis.dataDir}/second`, log: silentLog });
    await server.close();
    assert.match(await server.exited, /code 0|SIGTERM/);
    assert.throws(() => process.kill(server.pid, 0));
  });

  it('ends with its parent, even when that is killed', async () => {
    const child = spawn(
      process.execPath,
      [fileURLToPath(new URL('redis-parent.js', import.meta.url)), `${redis.dataDir}/orphan`],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const [url] = (await once(child.stdout.setEncoding('utf8'), 'data')) as [string];
    const reader = new Redis(url.trim(), { retryStrategy: () => null, maxRetriesPerRequest: 0 });
    reader.on('error', () => undefined);
    assert.equal(await reader.ping(), 'PONG');
    const lost = once(reader, 'close');
    child.kill('SIGKILL');
    await lost;
    const again = new Redis(url.trim(), {
      retryStrategy: () => null,
      maxRetriesPerRequest: 0,
      lazyConnect: true,
    });
    again.on('error', () => undefined);
    await assert.rejects(again.connect());
    for (const connection of [reader, again]) connection.disconnect();
  });

  it('rejects a port where something else answers, with the server’s own output', async () => {
    const other = createServer((socket) =>
      socket
        .end('-ERR I am not Redis\r\n')
        .resume()
        .on('error', () => undefined),
    );
    await new Promise<void>((done) => other.listen(0, '127.0.0.1', done));
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    await assert.rejects(
      startRedisServer({ dataDir: `${redis.dataDir}/third`, log: silentLog, port }),
      new RegExp(`did not start on port ${port}: .*bind`),
    );
    await new Promise((done) => other.close(done));
  });

  it('says what to install where no server is installed', async () => {
    const missing = startRedisServer({
      dataDir: `${redis.dataDir}/fourth`,
      log: silentLog,
      programs: ['no-such-redis', 'no-such-valkey'],
    });
    await assert.rejects(
      missing,
      (error) => error instanceof UsageError && /apt-get install redis-server/.test(error.message),
    );
  });
});
