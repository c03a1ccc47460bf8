import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isLoopback, parseAddress, parseListenAddress } from '#src/runtime/address.ts';
import { UsageError } from '#src/runtime/flags.ts';

describe('parseAddress', () => {
  it('reads a socket as URL or path', () => {
    assert.deepEqual(parseAddress('f', 'unix:///run/a.sock'), {
      kind: 'unix',
      path: '/run/a.sock',
    });
    assert.deepEqual(parseAddress('f', '/run/a.sock'), { kind: 'unix', path: '/run/a.sock' });
  });

  it('reads host and port, IPv6 in brackets', () => {
    assert.deepEqual(parseAddress('f', 'dns:///gateway.ns:9741'), {
      kind: 'tcp',
      host: 'gateway.ns',
      port: 9741,
    });
    assert.deepEqual(parseAddress('f', 'dns:///[::1]:9741'), {
      kind: 'tcp',
      host: '::1',
      port: 9741,
    });
  });

  for (const text of [
    '',
    'relative.sock',
    'tcp://h:1',
    'dns:///h',
    'dns:///h:70000',
    'dns:///::1:5',
  ]) {
    it(`refuses ${JSON.stringify(text)} and names the flag`, () => {
      assert.throws(
        () => parseAddress('gateway', text),
        (error) => error instanceof UsageError && error.message.startsWith('--gateway: '),
      );
    });
  }

  it('refuses a socket path that is too long for the kernel', () => {
    assert.throws(() => parseAddress('listen', `/${'x'.repeat(107)}`), /longer than 107 bytes/);
  });
});

describe('parseListenAddress', () => {
  it('treats a missing host as all interfaces', () =>
    assert.deepEqual(parseListenAddress('f', ':8080'), { host: undefined, port: 8080 }));
  it('reads IPv6', () =>
    assert.deepEqual(parseListenAddress('f', '[::1]:80'), { host: '::1', port: 80 }));
  it('refuses a bare port', () =>
    assert.throws(() => parseListenAddress('http-endpoint', '8080'), UsageError));
});

describe('isLoopback', () => {
  it('accepts names and addresses of this machine', () =>
    assert.ok(['127.0.0.1', '127.8.9.1', '::1', 'localhost'].every(isLoopback)));
  it('rejects all others', () =>
    assert.ok(!['0.0.0.0', '10.0.0.1', 'example.com', '::'].some(isLoopback)));
});
