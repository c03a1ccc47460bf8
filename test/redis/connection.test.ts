import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { redisOptions } from '#src/redis/client.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('redisOptions', () => {
  it('lets a worker wait for Redis, and other roles fail soon', () => {
    assert.equal(redisOptions('rediss://x', 'worker').maxRetriesPerRequest, null);
    // A time limit would also end the worker's blocking read of ten seconds.
    assert.equal(redisOptions('rediss://x', 'worker').commandTimeout, undefined);
    assert.equal(redisOptions('rediss://x', 'producer').maxRetriesPerRequest, 1);
    assert.equal(redisOptions('rediss://x', 'plain').commandTimeout, 5000);
  });
});

describe('openRedis', () => {
  let redis: TestRedis;
  const links: RedisLink[] = [];
  const open = (url: string): RedisLink => {
    const link = openRedis({ url, role: 'plain', log: silentLog });
    links.push(link);
    return link;
  };
  before(async () => {
    redis = await startTestRedis();
  });
  after(async () => {
    for (const link of links) link.close();
    await redis.close();
  });

  it('has no trouble once connected, and marks the first connection', async () => {
    const link = open(redis.url);
    const seen: boolean[] = [];
    link.onReady((isFirst) => seen.push(isFirst));
    assert.match(link.trouble ?? '', /not connected yet/);
    await until(() => link.trouble === undefined, 'connected');
    await redis.kill();
    await until(() => link.trouble !== undefined, 'the loss is seen');
    assert.match(link.trouble ?? '', /^Redis at 127\.0\.0\.1:\d+/);
    await redis.start();
    await until(() => link.trouble === undefined, 'connected again');
    assert.deepEqual(seen, [true, false]);
  });

  it('reports a refused login, without the password, and tries it again', async () => {
    const url = new URL(redis.url);
    url.password = 'mistyped';
    const link = open(url.href);
    await until(() => /refuses the login/.test(link.trouble ?? ''), 'the refusal is reported');
    assert.match(link.trouble ?? '', /WRONGPASS.*--redis-url/);
    assert.ok(!(link.trouble ?? '').includes('mistyped'));
    url.password = '';
    const anonymous = open(url.href);
    await until(() => /NOAUTH/.test(anonymous.trouble ?? ''), 'a missing password is reported');
    await redis.redis.config('SET', 'requirepass', 'mistyped');
    await until(() => link.trouble === undefined, 'the login is tried again');
    await redis.redis.config('SET', 'requirepass', decodeURIComponent(new URL(redis.url).password));
  });

  it('reports that Redis still reads its data, and is usable after that', async () => {
    const slow = await startTestRedis({
      settings: ['key-load-delay 2000', 'loading-process-events-interval-bytes 1024'],
    });
    const keys = Array.from({ length: 1_500 }, (_, i) =>
      slow.redis.set(`key-${i}`, 'x'.repeat(99)),
    );
    await Promise.all(keys);
    await slow.kill();
    const link = open(slow.url);
    const started = slow.start();
    await until(() => /LOADING.*goes on by itself/.test(link.trouble ?? ''), 'it is reported');
    await started;
    await until(() => link.trouble === undefined, 'it is usable');
    await slow.close();
  });

  it('remembers what Redis refuses until the same part is served, and logs it once', async () => {
    const lines: string[] = [];
    const link = openRedis({
      url: redis.url,
      role: 'plain',
      log: createLogger({
        name: 'test',
        verbosity: 0,
        format: 'text',
        write: (line) => void lines.push(line),
      }),
    });
    links.push(link);
    const write = (part: string): Promise<unknown> => link.observe(part, link.redis.set('k', 'v'));
    await write('a');
    await redis.redis.config('SET', 'maxmemory', '1');
    for (const part of ['a', 'b', 'a']) await assert.rejects(write(part), /OOM/);
    assert.match(link.refusal ?? '', /^Redis at 127.*: OOM .*: raise maxmemory$/);
    await link.observe('reader', link.redis.get('k'));
    assert.notEqual(link.refusal, undefined);
    await redis.redis.config('SET', 'maxmemory', '0');
    await write('a');
    assert.notEqual(link.refusal, undefined);
    await write('b');
    assert.equal(link.refusal, undefined);
    assert.deepEqual(
      lines
        .map((line) => /(refuses what it is sent|takes again)/.exec(line)?.[1] ?? '')
        .join(' ')
        .trim(),
      'refuses what it is sent takes again',
    );
  });

  it('names user, command and keys of what Redis denies, once, until it is granted', async () => {
    const rules = ['reset', 'on', '>secret', '~{csi}:a', '+@all'];
    await redis.redis.call('ACL', 'SETUSER', 'limited', ...rules);
    const lines: string[] = [];
    const write = (line: string): void => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    const url = Object.assign(new URL(redis.url), { username: 'limited', password: 'secret' }).href;
    const link = openRedis({ url, role: 'plain', name: 'reader', log });
    links.push(link);
    const script = "return redis.call('GET', KEYS[1])";
    const denied = [
      () => link.redis.hget('{csi}:volume:d:uid-1', 'f'),
      () => link.redis.hget('{csi}:volume:d:uid-2', 'f'),
      () => link.redis.eval(script, 1, '{csi}:queues'),
    ];
    for (const command of denied) await assert.rejects(command, /NOPERM user limited may not run/);
    const said = lines.join('').match(/user limited may not run [^:]+:\S+/g);
    assert.deepEqual(said, [
      'user limited may not run HGET on {csi}:volume:*:',
      'user limited may not run a script on {csi}:queues:',
    ]);
    assert.match(link.refusal ?? '', /HGET on \{csi\}:volume:\*: grant its user .*users\.acl/);
    await link.redis.get('{csi}:a');
    assert.notEqual(link.refusal, undefined);
    await redis.redis.call('ACL', 'SETUSER', 'limited', '~{csi}:*');
    for (const command of denied) await command();
    assert.equal(link.refusal, undefined);
  });

  it('looks for the master of a replica, and tells its listeners only when it found one', async () => {
    const link = open(redis.url);
    const seen: boolean[] = [];
    link.onReady((isFirst) => seen.push(isFirst));
    let connections = 0;
    link.redis.on('ready', () => (connections += 1));
    const write = (): Promise<unknown> => link.observe('writer', link.redis.set('k', 'v'));
    await until(() => link.trouble === undefined, 'connected');
    await redis.redis.replicaof('127.0.0.1', 1);
    await assert.rejects(write(), /READONLY/);
    await until(() => connections === 2, 'it reconnects');
    assert.match(link.refusal ?? '', /READONLY.*name the master/);
    assert.deepEqual(seen, [true]);
    await redis.redis.replicaof('NO', 'ONE');
    await until(
      () =>
        write().then(
          () => true,
          () => false,
        ),
      'the write is taken',
    );
    assert.deepEqual([link.refusal, link.trouble], [undefined, undefined]);
    assert.deepEqual(seen, [true, false]);
  });

  it('reports the address where nothing listens', async () => {
    const link = open('redis://127.0.0.1:1');
    await until(
      () => /127\.0\.0\.1:1 can't be reached \(ECONNREFUSED\)/.test(link.trouble ?? ''),
      'the refusal is reported',
    );
  });

  it('closes at once, whether Redis is there or not', async () => {
    const link = open('redis://127.0.0.1:1');
    link.close();
    assert.match(link.trouble ?? '', /closed/);
    await assert.rejects(link.redis.get('x'));
  });
});
