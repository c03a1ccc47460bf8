import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseRedisUrl, redisAddress } from '#src/redis/access.ts';
import { UsageError } from '#src/runtime/flags.ts';

describe('parseRedisUrl', () => {
  it('reads hosts, ports, users, passwords and databases', () => {
    assert.deepEqual(parseRedisUrl('redis://127.0.0.1'), { host: '127.0.0.1', port: 6379 });
    assert.deepEqual(parseRedisUrl('redis://:p%40ss%2Fw%3Ard@redis.example:6380/3'), {
      host: 'redis.example',
      port: 6380,
      password: 'p@ss/w:rd',
      db: 3,
    });
    assert.deepEqual(parseRedisUrl('redis://user:pw@[::1]:6379'), {
      host: '::1',
      port: 6379,
      username: 'user',
      password: 'pw',
    });
    assert.deepEqual(parseRedisUrl('unix:///run/redis.sock'), { path: '/run/redis.sock' });
  });

  it('uses TLS with the host as server name for rediss://', () => {
    assert.deepEqual(parseRedisUrl('rediss://redis.example'), {
      host: 'redis.example',
      port: 6379,
      tls: { servername: 'redis.example' },
    });
  });

  it('gives TLS no server name for an IP address, which can be none', () => {
    assert.deepEqual(parseRedisUrl('rediss://10.0.0.1').tls, {});
    assert.deepEqual(parseRedisUrl('rediss://[::1]').tls, {});
  });

  it('reads the Sentinels and the name of the master', () => {
    assert.deepEqual(parseRedisUrl('redis-sentinel://:pw@a:26379,[::1],c:1/main/2'), {
      sentinels: [
        { host: 'a', port: 26_379 },
        { host: '::1', port: 26_379 },
        { host: 'c', port: 1 },
      ],
      name: 'main',
      password: 'pw',
      db: 2,
    });
  });

  it('answers an unreadable URL with the accepted forms, without repeating the password', () => {
    for (const url of [
      '',
      'localhost:6379',
      'http://u:hidden@x',
      'redis://:hidden@',
      'redis://:hidden@x/db',
      'redis://:hidden%@x',
      'redis://:hidden@x?a=b',
      'redis-sentinel://:hidden@a',
    ]) {
      assert.throws(
        () => parseRedisUrl(url),
        (error) =>
          error instanceof UsageError &&
          error.message.startsWith('--redis-url') &&
          !error.message.includes('hidden'),
        url,
      );
    }
  });
});

describe('redisAddress', () => {
  it('names host and port without user or password', () => {
    assert.equal(redisAddress(parseRedisUrl('redis://u:hidden@h:1/2')), 'h:1');
    assert.equal(
      redisAddress(parseRedisUrl('redis-sentinel://u:hidden@a:1,b:2/main')),
      'a:1,b:2/main',
    );
  });
});
