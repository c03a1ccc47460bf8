import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { WebhookSource } from '#src/ingest/notices/webhook-source.ts';
import type { ListOptions } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Resource } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { SourceBed } from '../objects/source-bed.ts';

// test/ingest/objects/sources.test.ts has what it shares with the watches.
describe('the lists of a webhook source', () => {
  let bed: SourceBed<WebhookSource>;
  /** Of pages after the first one. */
  let failures: KubeError[];
  beforeEach(async () => {
    failures = [];
    bed = await SourceBed.open(WebhookSource, (kube) => ({
      ...kube,
      list<T>(resource: Resource, o: ListOptions = {}) {
        const failure = o.continueToken === undefined ? undefined : failures.shift();
        if (failure !== undefined) return Promise.reject(failure);
        return kube.list<T>(resource, { ...o, limit: 2 });
      },
    }));
    for (const name of ['a', 'b']) await bed.newClaim(name);
    await bed.newVolume('pv', 'Released');
    await bed.newVolume('bound', 'Bound');
  });
  afterEach(() => bed.close());

  it('come in pages, and enqueue nothing themselves', async () => {
    assert.deepEqual(await bed.outstanding(), ['a', 'b', 'before-start', 'pv']);
    assert.deepEqual(bed.calls, []);
  });

  it('begin again when a page fails, and say meanwhile what is wrong', async () => {
    const failure = (code: number): KubeError =>
      new KubeError({ code, reason: 'Test', serverMessage: 'no', request: 'list' });
    failures = [failure(500), failure(410)];
    const listing = bed.outstanding();
    await until(() => bed.source.trouble !== undefined, 'it is said');
    assert.match(bed.source.trouble ?? '', /persistentvolumeclaims: /);
    assert.deepEqual([...new Set(await listing)], ['a', 'b', 'before-start', 'pv']);
    assert.equal(bed.source.trouble, undefined);
  });

  it('let an object be enqueued that was listed for something else before its notice', async () => {
    for await (const { kind } of bed.source.claims(() => true)) assert.ok(kind !== 'Volume');
    for await (const { kind } of bed.source.volumes(() => true)) assert.ok(kind !== 'Claim');
    await bed.look('persistentvolumeclaims', 'a');
    await bed.look('persistentvolumes', 'pv');
    assert.deepEqual(bed.calls, ['ensure a', 'ensure pv']);
  });

  it('end when this ingest does not lead any more', async () => {
    for await (const key of bed.handler.outstanding()) {
      assert.ok(key.name);
      bed.queue.block();
      break;
    }
    await assert.rejects(bed.outstanding(), /does not lead/);
  });
});
