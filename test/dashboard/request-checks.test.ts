import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseHosts, parseProxies } from '#src/dashboard/request-checks.ts';
import { UsageError } from '#src/runtime/flags.ts';

describe('the hosts that are served', () => {
  it('are loopback names at any port', () => {
    const isServed = parseHosts(':8088', []);
    for (const host of ['localhost', 'LOCALHOST:8088', '127.0.0.1:41000', '127.8.0.1', '[::1]:80'])
      assert.equal(isServed(host), true, host);
  });

  it('are the host of the listen address, and the names of the flag', () => {
    const isServed = parseHosts('192.0.2.7:8088', ['Dashboard.example.com', 'sutler', 'fd00::7']);
    for (const host of ['192.0.2.7:8088', 'dashboard.example.com.', 'SUTLER:80', '[FD00:0::7]'])
      assert.equal(isServed(host), true, host);
    assert.equal(parseHosts('[fd00::8]:1', [])('[fd00::8]'), true);
  });

  it('are no others', () => {
    const isServed = parseHosts(':8088', ['sutler']);
    const others = [
      'evil.example',
      'localhost.evil.example',
      '127.0.0.1.evil.example',
      'sutler.evil.example',
      'evil.example:8088',
      '192.0.2.7',
      '0.0.0.0',
      '[::]',
      'localhost@evil.example',
      'evil.example/localhost',
      'localhost:x',
      'localhost, evil.example',
      '',
    ];
    for (const host of others) assert.equal(isServed(host), false, host);
  });

  for (const name of ['http://a', 'a:80', 'a/b', 'a b', '*.example.com', 'a@b', '[::1'])
    it(`may not be given as "${name}"`, () =>
      assert.throws(
        () => parseHosts(':8088', [name]),
        (error) => error instanceof UsageError && error.message.startsWith('--dashboard-hosts: '),
      ));
});

describe('trusted proxies', () => {
  it('are the addresses and networks that are named', () => {
    const isProxy = parseProxies(['192.0.2.1', '10.1.0.0/16', 'fd00:1::/32']);
    for (const address of ['192.0.2.1', '::ffff:192.0.2.1', '10.1.255.9', 'fd00:1:2::3'])
      assert.equal(isProxy(address), true, address);
    for (const address of ['192.0.2.2', '10.2.0.1', 'fd00:2::1', '127.0.0.1', '', 'unknown'])
      assert.equal(isProxy(address), false, address);
  });

  it('are none without the flag', () => assert.equal(parseProxies([])('127.0.0.1'), false));

  for (const item of ['proxy', '10.0.0.0/33', '10.0.0.0/', '0.0.0.0/0', '::/0', '1.2.3.4/8/8'])
    it(`may not be given as ${item}`, () =>
      assert.throws(
        () => parseProxies([item]),
        (error) =>
          error instanceof UsageError && error.message.startsWith('--dashboard-trusted-proxies: '),
      ));
});
