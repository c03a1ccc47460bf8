import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Event } from '#src/kube/objects.ts';
import { events } from '#src/kube/resources.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

describe('claims that wait for a driver that is down', () => {
  let bed: ProcessBed;
  let ingest: Running;
  before(async () => {
    bed = await ProcessBed.open({ flags: ['--worker-threads=2'] });
    ingest = await bed.startIngest();
    const jobs = await bed.startJobs();
    const first = await bed.newClaim();
    await until(() => bed.isBound(first), 'the driver is in use');
    await until(() => jobs.output.some((line) => line.includes('taking jobs')), 'jobs work');
    await bed.driver.close();
  });
  after(() => bed.close());

  it('have one event each that names the driver’s socket, also those that no run has taken', async () => {
    const claims: Claim[] = [];
    for (let i = 0; i < 12; i += 1) claims.push(await bed.newClaim());
    const told = async (): Promise<readonly Event[]> => {
      const { items } = await bed.kube.list<Event>(events, { namespace: 'default' });
      return items.filter(({ reason }) => /^Provisioning(Failed|Delayed)$/.test(reason ?? ''));
    };
    const uidsOf = (items: readonly Event[]) => items.map((each) => each.involvedObject.uid ?? '');
    await until(
      async () => new Set(uidsOf(await told())).size === claims.length,
      'each claim has an event',
      10_000,
    );
    const renewed = /^sutler_kube_events_total\{type="Warning",result="updated"\} [1-9]/m;
    await until(
      async () => renewed.test(await (await fetch(`${ingest.url}/metrics`)).text()),
      'ingest has renewed the event of a run',
      10_000,
    );
    const items = await told();
    assert.deepEqual(uidsOf(items).toSorted(), claims.map((each) => each.metadata.uid).toSorted());
    for (const { message } of items)
      assert.match(message, /driver.*csi\.sock.*; start the driver, or see why/);
    // A claim whose first run tries the driver is Running meanwhile.
    const all = /^ {2}12 claims pending: Unreachable/m;
    await until(async () => all.test(await bed.operate('status')), 'status counts all of them');
  });
});

describe('claims that wait for a driver that does not answer in time', () => {
  let bed: ProcessBed;
  before(async () => {
    bed = await ProcessBed.open({
      flags: ['--timeout=1s'],
      onCall: ({ method, signal }) =>
        method === 'CreateVolume'
          ? new Promise((_, reject) => signal.addEventListener('abort', reject))
          : undefined,
    });
    await bed.startIngest();
    await bed.startJobs();
    for (let i = 0; i < 3; i += 1) await bed.newClaim();
  });
  after(() => bed.close());
  const isTold = async (text: RegExp) => text.test(await bed.operate('status'));

  it('tell an administrator after three calls to raise --timeout, in their events too', async () => {
    const told =
      /3 claims pending: DriverSlow.*\(administrator: raise --timeout \(it is 1s\), or see/;
    await until(() => isTold(told), 'status says so', 20_000);
    const isInEvents = async () => {
      const { items } = await bed.kube.list<Event>(events, { namespace: 'default' });
      const slow = items.filter(({ message }) => message?.endsWith('see why the driver is slow'));
      return new Set(slow.map((each) => each.involvedObject.uid)).size === 3;
    };
    await until(isInEvents, 'each claim has such an event');
  });

  it('say that it can’t be reached when one of them finds that', async () => {
    await bed.driver.close();
    await until(() => isTold(/3 claims pending: Unreachable/), 'status says so', 20_000);
  });
});
