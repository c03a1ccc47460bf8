import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ReplyError } from 'ioredis';
import { describeRedisError } from '#src/redis/error-text.ts';

/** What a Redis says that refuses, and the fix. */
const REFUSALS: readonly (readonly [said: string, fix: string])[] = [
  ["OOM command not allowed when used memory > 'maxmemory'.", 'raise maxmemory'],
  ['MISCONF Errors writing to the AOF file: No space left on device', 'check its disk'],
  ['NOREPLICAS Not enough good replicas to write.', 'start its replicas'],
  ["READONLY You can't write against a read only replica.", 'name the master in --redis-url'],
  ['MASTERDOWN Link with MASTER is down', 'name the master in --redis-url'],
  ['CLUSTERDOWN Hash slot not served', 'Redis Cluster is not supported'],
  ['MOVED 3999 127.0.0.1:6381', 'Redis Cluster is not supported'],
  ['NOPERM this user has no permissions to run this command', 'grant its user the missing'],
];

describe('describeRedisError', () => {
  for (const [said, fix] of REFUSALS)
    it(`repeats "${said}" and says what to do`, () => {
      const line = describeRedisError('h:1', new Error(said));
      assert.ok(line.startsWith(`Redis at h:1: ${said.replace(/\.$/, '')}: ${fix}`), line);
      const ofScript = `${said} script: f1d2, on @user_script:3.`;
      assert.equal(describeRedisError('h:1', new Error(ofScript)), line);
    });

  for (const word of ['WRONGPASS', 'NOAUTH'])
    it(`says which login is refused with ${word}`, () => {
      const said = describeRedisError('h:1', new Error(`${word} Authentication required.`));
      assert.match(said, new RegExp(`${word}.*: correct user and password in --redis-url`));
    });

  it('finds the error word in the middle, where older versions put it', () => {
    const said = 'ERR Error running script (call to f_1): @user_script:3: -OOM command not allowed';
    assert.match(describeRedisError('h:1', new Error(said)), /: raise maxmemory$/);
  });

  it('repeats an error that it does not know, if Redis answered it', () => {
    const error = new ReplyError('ERR unknown command');
    assert.equal(describeRedisError('h:1', error), 'Redis at h:1: ERR unknown command');
  });

  for (const [said, fix] of [
    ['connect ECONNREFUSED 127.0.0.1:1', /can't be reached \(connect ECONNREF.*: start it/],
    ['self-signed certificate in certificate chain', /--redis-tls-ca$/],
    ['unable to get local issuer certificate', /--redis-tls-ca$/],
    [
      "Hostname/IP does not match certificate's altnames: x",
      /altnames: x\).*--redis-tls-server-name/,
    ],
    ['certificate has expired', /renew its certificate$/],
    ['C0:error:0A00010B:SSL routines:wrong version number', /redis:\/\/ without TLS/],
    ['C0:error:0A00045C:SSL routines:tlsv13 alert certificate required:x', /--redis-tls-cert and/],
    ['Socket timeout. Expecting data', /check its load/],
  ] as const)
    it(`says what to do about "${said}"`, () => {
      assert.match(describeRedisError('h:1', new Error(said)), fix);
    });

  it('says the same at each attempt to reach the Sentinels', () => {
    const error = (delayMs: number): Error =>
      new Error(`All sentinels are unreachable. Retrying from scratch after ${delayMs}ms. Last: x`);
    assert.equal(describeRedisError('h:1', error(10)), describeRedisError('h:1', error(20)));
  });
});
