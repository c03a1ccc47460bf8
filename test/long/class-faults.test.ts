import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, classes, volumes } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const CLASS = 'two-at-once';
const CALL_MS = 200;
const CLAIMS = 40;

describe('a class that creates two volumes at once', () => {
  let bed: ProcessBed;
  let worker: Running;
  const created: Claim[] = [];
  const inFlight: Record<string, number> = {};
  let most = 0;
  let begun = 0;
  before(async () => {
    bed = await ProcessBed.open({
      // A volume that was created in doubt is deleted 13 s later.
      flags: ['--timeout=2s', '--settle-time=1s'],
      onCall: async ({ method }) => {
        if (method !== 'CreateVolume' && method !== 'DeleteVolume') return undefined;
        if (method === 'CreateVolume') begun += 1;
        most = Math.max(most, (inFlight[method] = (inFlight[method] ?? 0) + 1));
        await systemClock.sleep(CALL_MS);
        inFlight[method] -= 1;
        return undefined;
      },
    });
    const metadata = { name: CLASS, annotations: { 'sutler.dev/max-in-flight': '2' } };
    await bed.createClass(CLASS, { provisioner: DRIVER, reclaimPolicy: 'Delete', metadata });
    await bed.startIngest();
    worker = await bed.startJobs('--lock-duration=5s');
    await bed.startJobs('--lock-duration=5s');
    for (let i = 0; i < CLAIMS; i += 1)
      created.push(await bed.newClaim('1Mi', { storageClassName: CLASS }));
  });
  after(() => bed.close());

  const countBound = async (): Promise<number> => {
    const { items } = await bed.kube.list<Claim>(claims, { namespace: 'default' });
    return items.filter(({ status }) => status?.phase === 'Bound').length;
  };
  const untilBound = (count: number): Promise<void> =>
    until(async () => (await countBound()) >= count, `${count} are bound`, 60_000);
  const remove = async (removed: readonly Claim[]): Promise<void> => {
    for (const { metadata } of removed)
      await bed.kube.delete(claims, { namespace: 'default', name: metadata.name });
  };

  it('goes on when claims in the line are deleted, and when a worker ends', async () => {
    await untilBound(5);
    await remove(created.splice(25, 8));
    await worker.stop();
    await untilBound(10);
    assert.equal(most, 2);
  });

  it('goes on after an outage of Redis', async () => {
    await bed.redis.kill();
    await systemClock.sleep(1_000);
    await bed.redis.start();
    await untilBound(16);
    assert.equal(most, 2);
  });

  it('creates nothing while it is paused, and everything afterwards', async () => {
    const limit = (text: string) => {
      const body = { metadata: { annotations: { 'sutler.dev/max-in-flight': text } } };
      return bed.kube.patch(classes, { name: CLASS }, { type: 'merge', body });
    };
    await limit('0');
    const causes = async (): Promise<string> => {
      const found = (await bed.operate('status')).matchAll(/^ {2}\d+ claims pending: (\w+)/gm);
      return [...found].map(([, cause]) => cause).join();
    };
    await until(async () => (await causes()) === 'Paused', 'all that wait are paused', 30_000);
    const count = begun;
    await systemClock.sleep(2_000);
    assert.equal(begun, count);
    await limit('2');
    await untilBound(created.length);
    assert.equal(most, 2);
  });

  it('deletes two volumes at once', async () => {
    await remove(created);
    const left = async () => (await bed.kube.list<Volume>(volumes)).items.length;
    await until(async () => (await left()) === 0, 'all are deleted', 60_000);
    assert.equal(most, 2);
  });
});
