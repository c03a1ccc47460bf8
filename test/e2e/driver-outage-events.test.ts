import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Event } from '#src/kube/objects.ts';
import { events } from '#src/kube/resources.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { until } from '../harness/until.ts';

describe('claims that wait for a driver that is down', () => {
  let bed: ProcessBed;
  before(async () => {
    bed = await ProcessBed.open({ flags: ['--worker-threads=2'] });
    await bed.startIngest();
    const jobs = await bed.startJobs();
    const first = await bed.newClaim();
    await until(() => bed.isBound(first), 'the driver is in use');
    await until(() => jobs.output.some((line) => line.includes('taking jobs')), 'jobs work');
    await bed.driver.close();
  });
  after(() => bed.close());

  it('have an event each that names the driver’s socket, also those that no run has taken', async () => {
    const claims: Claim[] = [];
    for (let i = 0; i < 12; i += 1) claims.push(await bed.newClaim());
    const told = async (): Promise<Map<string, string>> => {
      const { items } = await bed.kube.list<Event>(events, { namespace: 'default' });
      return new Map(
        items
          .filter(({ reason }) => /^Provisioning(Failed|Delayed)$/.test(reason ?? ''))
          .map(({ involvedObject, message }) => [involvedObject.uid ?? '', message]),
      );
    };
    await until(
      async () => {
        const messages = await told();
        return claims.every(({ metadata: { uid } }) => messages.has(uid));
      },
      'each claim has an event',
      10_000,
    );
    for (const message of (await told()).values()) assert.match(message, /driver.*csi\.sock/);
    assert.match(await bed.operate('status'), /^ {2}12 claims pending: Unreachable/m);
  });
});
