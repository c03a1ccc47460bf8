import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { Event } from '#src/kube/objects.ts';
import { events } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { until } from '../harness/until.ts';

/** The back end makes one volume after the other: two a second. */
const CREATION_MS = 500;
const LIMITED = 'limited';

describe('a back end that makes two volumes a second, and two workers', () => {
  let bed: ProcessBed;
  let calls = 0;
  let inFlight = 0;
  let most = 0;
  const endsAtMs: number[] = [];
  beforeEach(async () => {
    calls = inFlight = most = 0;
    endsAtMs.length = 0;
    let last: Promise<unknown> = Promise.resolve();
    bed = await ProcessBed.open({
      flags: ['--timeout=10s'],
      onCall: async ({ method }) => {
        if (method !== 'CreateVolume') return undefined;
        calls += 1;
        most = Math.max(most, (inFlight += 1));
        last = last.then(() => systemClock.sleep(CREATION_MS));
        await last;
        inFlight -= 1;
        endsAtMs.push(Date.now());
        return undefined;
      },
    });
  });
  afterEach(() => bed.close());

  /** @returns volumes a second, without the first one */
  const provision = async (count: number, storageClassName: string): Promise<number> => {
    await Promise.all([bed.startJobs(), bed.startJobs()]);
    const claims = [];
    for (let i = 0; i < count; i += 1) claims.push(await bed.newClaim('1Mi', { storageClassName }));
    await until(() => endsAtMs.length >= count, 'all volumes are made', count * 1_000);
    for (const claim of claims) await until(() => bed.isBound(claim), 'bound', 30_000);
    const { items } = await bed.kube.list<Event>(events);
    assert.deepEqual(
      items.filter(({ reason }) => reason === 'ProvisioningFailed').map(({ message }) => message),
      [],
    );
    assert.equal(calls, count, 'each volume took one call');
    return (1_000 * (count - 1)) / ((endsAtMs.at(-1) ?? 0) - (endsAtMs[0] ?? 0));
  };

  it('make 200 at nine tenths of that by the limit of the class, without a timeout', async (t) => {
    const annotations = { 'sutler.dev/max-in-flight': '4' };
    const metadata = { name: LIMITED, annotations };
    await bed.createClass(LIMITED, { provisioner: DRIVER, metadata });
    await bed.startIngest();
    const perSecond = await provision(200, LIMITED);
    t.diagnostic(`${perSecond.toFixed(3)} volumes a second, at most ${most} calls at once`);
    assert.ok(perSecond >= 1.8, String(perSecond));
    assert.ok(most <= 4, String(most));
  });

  it('make 100 at nine tenths of that by the limit of the driver', async (t) => {
    await bed.startIngest('--max-jobs-per-second=2');
    await until(async () => (await bed.redis.redis.keys('*:meta')).length > 0, 'limits are stored');
    const perSecond = await provision(100, 'sample');
    t.diagnostic(`${perSecond.toFixed(3)} volumes a second, at most ${most} calls at once`);
    assert.ok(perSecond >= 1.8, String(perSecond));
  });
});
