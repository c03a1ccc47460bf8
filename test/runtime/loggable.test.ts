import assert from 'node:assert/strict';
import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { strikeCredentials, toLoggable } from '#src/runtime/loggable.ts';

const SECRET = 'planted-secret';

/** An error as ioredis makes it for a refused login. */
function refusedLogin(options?: ErrorOptions): Error {
  const command = { name: 'auth', args: ['default', SECRET] };
  return Object.assign(new Error('WRONGPASS invalid password', options), { command });
}

describe('toLoggable', () => {
  it('keeps type, message, stack and code of an error, and nothing else', () => {
    const error = Object.assign(refusedLogin(), { code: 'EREFUSED' });
    assert.deepEqual(toLoggable(error), {
      type: 'Error',
      message: 'WRONGPASS invalid password',
      stack: error.stack,
      code: 'EREFUSED',
    });
  });

  it('ends with errors that are their own cause', () => {
    const error = new Error('again');
    error.cause = error;
    assert.ok(JSON.stringify(toLoggable(error)).length < 20_000);
  });

  it('names the class of an object that is not plain, without its content', () => {
    const redis = new Redis({ lazyConnect: true, password: SECRET });
    const request = new IncomingMessage(new Socket());
    request.headers.authorization = SECRET;
    class Session {
      readonly cookie = SECRET;
    }
    assert.deepEqual(
      toLoggable({ redis, request, session: new Session(), bytes: Buffer.from(SECRET) }),
      {
        // ioredis gives its class the constructor of an event emitter.
        redis: '[EventEmitter]',
        request: '[IncomingMessage]',
        session: '[Session]',
        bytes: '[Buffer]',
      },
    );
  });

  it('strikes headers and login options in plain objects below the first level', () => {
    const login = { Authorization: SECRET, cookie: SECRET, sentinelPassword: SECRET, host: 'h' };
    assert.deepEqual(toLoggable({ login }), {
      login: {
        Authorization: '***stripped***',
        cookie: '***stripped***',
        sentinelPassword: '***stripped***',
        host: 'h',
      },
    });
  });
});

describe('strikeCredentials', () => {
  for (const [text, struck] of [
    ['at redis://user:pass@host:1/0 now', 'at redis://***stripped***@host:1/0 now'],
    ['redis://[user:password@h]x@host', 'redis://***stripped***@host'],
    ['rediss://:p@ss@host', 'rediss://***stripped***@host'],
    ['redis://u:pa/ss@host', 'redis://***stripped***@host'],
    ['redis-sentinel://u:pass@a:1,b:2/main', 'redis-sentinel://***stripped***@a:1,b:2/main'],
    [
      '--redis-url=redis://u:pass@h, http://x:pass@y',
      '--redis-url=redis://***stripped***@h, http://***stripped***@y',
    ],
    ['"https://x/y,redis://u:pass@h"', '"https://x/y,redis://***stripped***@h"'],
    ['-----BEGIN PRIVATE KEY-----\npass\n-----END PRIVATE KEY-----', '***stripped***'],
  ] as const)
    it(`makes ${JSON.stringify(struck)} of ${JSON.stringify(text)}`, () => {
      assert.equal(strikeCredentials(text), struck);
    });

  for (const text of [
    'file:///app/node_modules/@bull-board/api/index.js:1:2',
    'https://example.com/@name',
    'write rediss://[user:password@]host[:port][/db]',
  ])
    it(`keeps ${text}`, () => assert.equal(strikeCredentials(text), text));

  it('cuts a text after 8,192 characters and says how long it was', () => {
    const text = 'x'.repeat(200_000);
    assert.equal(toLoggable(text), `${text.slice(0, 8_192)}… (200000 characters)`);
    assert.ok(JSON.stringify(toLoggable(new Error(text))).length < 20_000);
  });
});
