import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import {
  type ClusterMarker,
  type ClusterMarkerOptions,
  watchClusterMarker,
} from '#src/redis/cluster-marker.ts';
import { openRedis } from '#src/redis/connection.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('watchClusterMarker', () => {
  let redis: TestRedis;
  let closers: Closers;
  const watch = (o: Partial<ClusterMarkerOptions> = {}): ClusterMarker => {
    const link = openRedis({ url: redis.url, role: 'plain', log: silentLog });
    const marker = watchClusterMarker({
      link,
      prefix: 'csi',
      clusterUid: () => Promise.resolve('ours'),
      log: silentLog,
      periodMs: 20,
      ...o,
    });
    closers.add('link', () => link.close());
    closers.add('marker', () => marker.stop());
    return marker;
  };
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    closers = new Closers();
    await redis.redis.flushall();
  });
  afterEach(() => closers.close());

  it('marks a Redis without a marker, and again after a flush', async () => {
    const marker = watch();
    assert.equal(marker.isOurs, false);
    await marker.waitUntilOurs(new AbortController().signal);
    assert.equal(marker.trouble, undefined);
    assert.equal(await redis.redis.get('{csi}:cluster'), 'ours');
    await redis.redis.flushall();
    await until(
      async () => (await redis.redis.get('{csi}:cluster')) === 'ours',
      'it is marked again',
    );
  });

  it('refuses the Redis of another cluster until its marker is deleted', async () => {
    await redis.redis.set('{csi}:cluster', 'theirs');
    const changes: boolean[] = [];
    const marker = watch();
    marker.onChange((isOurs) => changes.push(isOurs));
    await until(() => /another cluster/.test(marker.trouble ?? ''), 'the trouble is reported');
    assert.match(
      marker.trouble ?? '',
      /UID theirs, ours has ours.*--redis-prefix.*delete the key \{csi\}:cluster/,
    );
    assert.equal(marker.isOurs, false);
    assert.equal(await redis.redis.get('{csi}:cluster'), 'theirs', 'the marker is not changed');
    await redis.redis.del('{csi}:cluster');
    await until(() => marker.isOurs, 'it is ours');
    assert.deepEqual(changes, [true]);
    await redis.redis.set('{csi}:cluster', 'theirs');
    await until(() => !marker.isOurs, 'it is not ours any more');
    assert.deepEqual(changes, [true, false]);
  });

  it('waits for the API server and for Redis', async () => {
    let isUp = false;
    const marker = watch({
      clusterUid: () =>
        isUp ? Promise.resolve('ours') : Promise.reject(new Error('connection refused')),
    });
    await until(() => /connection refused/.test(marker.trouble ?? ''), 'the trouble is reported');
    await redis.kill();
    isUp = true;
    await sleep(100);
    assert.equal(marker.isOurs, false);
    await redis.start();
    await until(() => marker.isOurs, 'it is ours');
  });

  it('compares nothing where the process may not read the UID', async () => {
    await redis.redis.set('{csi}:cluster', 'theirs');
    const marker = watch({ clusterUid: () => Promise.resolve(undefined) });
    await marker.waitUntilOurs(new AbortController().signal);
    assert.equal(marker.trouble, undefined);
  });
});
