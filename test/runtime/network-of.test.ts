import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { networkOf } from '#src/runtime/network-of.ts';

describe('the network of an address', () => {
  const cases: readonly (readonly [string, string])[] = [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['127.0.0.1', 'loopback'],
    ['127.255.0.9', 'loopback'],
    ['::ffff:127.0.0.1', 'loopback'],
    ['::1', 'loopback'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:DB8:0001:2::', '2001:db8:1:2'],
    ['2001:db8::5', '2001:db8:0:0'],
    ['1::4:5:6:7:8', '1:0:0:4'],
    ['1:2:3::5:6:7:8', '1:2:3:0'],
    ['::2:3:4:5:6:7', '0:0:2:3'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['', ''],
  ];
  for (const [address, network] of cases)
    it(`${address === '' ? 'nothing' : address} is ${network === '' ? 'nothing' : network}`, () =>
      assert.equal(networkOf(address), network));
});
