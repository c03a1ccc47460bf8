import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parsePools } from '../../../sandbox/driver/pool-flag.ts';
import { nodePool } from '../../../sandbox/driver/pools.ts';

describe('--pool', () => {
  it('gives each node a pool', () =>
    assert.deepEqual(parsePools(['zone-a/node-a1=10Gi', 'zone-b/node-b1=500M']), [
      nodePool({ name: 'node-a1', zone: 'zone-a', capacityBytes: 10n * 1024n ** 3n }),
      nodePool({ name: 'node-b1', zone: 'zone-b', capacityBytes: 500_000_000n }),
    ]));

  for (const [texts, message] of [
    [['node-a1=1Gi'], '--pool node-a1=1Gi: write ZONE/NODE=SIZE, such as zone-a/node-a1=10Gi'],
    [['a b/n=1Gi'], '--pool a b/n=1Gi: write ZONE/NODE=SIZE, such as zone-a/node-a1=10Gi'],
    [['z/n=big'], '--pool z/n=big: the size is not a quantity; write for example 10Gi'],
    [['z/n=-1'], '--pool z/n=-1: the size must not be negative'],
    [['y/n=1', 'z/n=2'], '--pool: the node n has two pools; give each node one'],
    [['z/m=7Ei', 'z/n=1Ei'], '--pool: all pools together must be less than 8Ei'],
  ] as const)
    it(`${texts.join(',')} is refused`, () => assert.throws(() => parsePools(texts), { message }));
});
