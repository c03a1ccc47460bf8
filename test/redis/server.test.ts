import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { keepRedisServer, startRedisServer } from '#src/redis/server.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog as log } from '#src/runtime/log.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { until } from '../harness/until.ts';

const PARENT = fileURLToPath(new URL('redis-parent.js', import.meta.url));

function connectTo(url: string): Redis {
  const redis = new Redis(url.replace('unix://', ''), { retryStrategy: () => 20 });
  redis.on('error', () => undefined);
  return redis;
}

describe('the Redis that sutler starts', () => {
  const folders: Awaited<ReturnType<typeof makeFolder>>[] = [];
  const newFolder = async (): Promise<string> => {
    const folder = await makeFolder();
    folders.push(folder);
    return folder.file('.');
  };
  let folder: string;
  before(async () => {
    folder = await newFolder();
  });
  after(() => Promise.all(folders.map((each) => each.remove())));

  it('listens on its socket only, writes nothing to disk and evicts nothing', async () => {
    const server = await startRedisServer({ folder, log });
    const redis = connectTo(server.url);
    const settings = await redis.config('GET', 'port', 'appendonly', 'save', 'maxmemory-policy');
    assert.deepEqual(settings.sort(), [
      '',
      '0',
      'appendonly',
      'maxmemory-policy',
      'no',
      'noeviction',
      'port',
      'save',
    ]);
    redis.disconnect();
    await server.close();
    assert.match(await server.exited, /code 0|SIGTERM/);
    assert.throws(() => process.kill(server.pid, 0));
  });

  it('is started again when it ends', async () => {
    const kept = await keepRedisServer({ folder, log });
    const redis = connectTo(kept.url);
    const pid = Number(/^process_id:(\d+)/m.exec(await redis.info('server'))?.[1]);
    process.kill(pid, 'SIGKILL');
    await until(
      async () => (await redis.ping().catch(() => undefined)) === 'PONG',
      'it is back',
      10_000,
    );
    redis.disconnect();
    await kept.close();
  });

  it('is ended for good although it is just being started again', async () => {
    const kept = await keepRedisServer({ folder: await newFolder(), log });
    const redis = connectTo(kept.url);
    const pid = Number(/^process_id:(\d+)/m.exec(await redis.info('server'))?.[1]);
    redis.disconnect();
    process.kill(pid, 'SIGKILL');
    const socket = kept.url.replace('unix://', '');
    // Removed first, so that it comes with the next server, before that one is known to answer.
    rmSync(socket);
    await until(() => existsSync(socket), 'the next one begins');
    await kept.close();
    assert.equal(existsSync(socket), false);
  });

  it('ends with its parent, even when that is killed', async () => {
    const child = spawn(process.execPath, [PARENT, await newFolder()], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [url] = (await once(child.stdout.setEncoding('utf8'), 'data')) as [string];
    const redis = new Redis(url.trim().replace('unix://', ''), { retryStrategy: () => null });
    redis.on('error', () => undefined);
    assert.equal(await redis.ping(), 'PONG');
    const lost = once(redis, 'end');
    child.kill('SIGKILL');
    await lost;
  });

  it('that does not start says why in the server’s own words', () =>
    assert.rejects(
      startRedisServer({ folder, log, settings: ['no-such-setting 1'] }),
      /redis-server did not start: .*no-such-setting/,
    ));

  it('says what to install where no server is installed', () =>
    assert.rejects(
      startRedisServer({ folder, log, programs: ['no-such-redis', 'no-such-valkey'] }),
      (error) => error instanceof UsageError && /apt-get install redis-server/.test(error.message),
    ));
});
