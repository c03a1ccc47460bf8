import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isLoopback, parseAddress, parseListenAddress } from '#src/runtime/address.ts';
import { UsageError } from '#src/runtime/flags.ts';

describe('parseAddress', () => {
  const socket = { kind: 'unix', path: '/run/a.sock' };
  for (const [text, expected] of [
    ['unix:///run/a.sock', socket],
    ['/run/a.sock', socket],
    ['dns:///gateway.ns:9741', { kind: 'tcp', host: 'gateway.ns', port: 9741 }],
    ['dns:///[::1]:9741', { kind: 'tcp', host: '::1', port: 9741 }],
  ] as const)
    it(`reads ${text}`, () => assert.deepEqual(parseAddress('f', text), expected));

  const long = `/${'x'.repeat(107)}`;
  for (const text of [
    '',
    'a.sock',
    'tcp://h:1',
    'dns:///h',
    'dns:///h:70000',
    'dns:///::1:5',
    long,
  ])
    it(`refuses ${JSON.stringify(text)} and names the flag`, () => {
      const message = text === long ? /longer than 107 bytes/ : /^--gateway: /;
      assert.throws(
        () => parseAddress('gateway', text),
        (error) => error instanceof UsageError && message.test(error.message),
      );
    });
});

describe('parseListenAddress', () => {
  it('reads a port without a host as all interfaces, and IPv6', () => {
    assert.deepEqual(parseListenAddress('f', ':8080'), { host: undefined, port: 8080 });
    assert.deepEqual(parseListenAddress('f', '[::1]:80'), { host: '::1', port: 80 });
  });
  it('refuses a bare port', () =>
    assert.throws(() => parseListenAddress('http-endpoint', '8080'), UsageError));
});

it('isLoopback accepts names and addresses of this machine alone', () => {
  assert.ok(['127.0.0.1', '127.8.9.1', '::1', 'localhost'].every(isLoopback));
  assert.ok(!['0.0.0.0', '10.0.0.1', 'example.com', '::'].some(isLoopback));
});
