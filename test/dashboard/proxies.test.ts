import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseProxies } from '#src/dashboard/proxies.ts';
import { UsageError } from '#src/runtime/flags.ts';

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
