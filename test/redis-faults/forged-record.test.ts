import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { Code } from '#src/csi/status.ts';
import type { Claim, Event, Volume } from '#src/kube/objects.ts';
import { events, volumes } from '#src/kube/resources.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { urlOf } from '../harness/redis-users.ts';
import { until } from '../harness/until.ts';

describe('somebody with the Redis password of jobs', () => {
  let bed: ProcessBed;
  let thief: Redis;
  let isFailing = false;
  before(async () => {
    bed = await ProcessBed.open({
      onCall: ({ method }) => {
        if (isFailing && method === 'CreateVolume') throw new DriverStatus(Code.Unavailable, 'no');
      },
    });
    thief = new Redis(urlOf('jobs', bed.redis.url), { disableClientInfo: true });
    await bed.startIngest();
    await bed.startJobs('--retry-interval-max=500ms');
  });
  after(async () => {
    thief.disconnect();
    await bed.close();
  });

  const warnings = async ({ metadata: { uid } }: Claim): Promise<string> => {
    const { items } = await bed.kube.list<Event>(events, { namespace: 'default' });
    const ofClaim = items.filter(({ involvedObject }) => involvedObject.uid === uid);
    return ofClaim.map(({ message }) => message).join('\n');
  };

  it('binds no claim to the volume of another one; a forgotten record ends the wait', async () => {
    const victim = await bed.newClaim();
    await until(() => bed.isBound(victim), 'the victim is bound');
    const ref = { name: `pvc-${victim.metadata.uid}` };
    const handle = (await bed.kube.get<Volume>(volumes, ref))?.spec.csi?.volumeHandle;
    isFailing = true;
    const claim = await bed.newClaim();
    const { uid } = claim.metadata;
    const key = `{csi}:volume:${DRIVER}:${uid}`;
    await until(async () => (await thief.hget(key, 'amb')) === '1', 'a call has failed');
    const answer = { handle, context: {}, capacityBytes: '1048576', topology: [] };
    await until(async () => {
      // Each call that fails removes it again.
      await thief.hset(key, 'ans', JSON.stringify(answer));
      return (await warnings(claim)).includes(`the volume record ${uid} is not used`);
    }, 'an event says that the record is not used');
    isFailing = false;
    assert.equal(await bed.kube.get<Volume>(volumes, { name: `pvc-${uid}` }), undefined);
    await bed.operate('forget', uid, `--driver-name=${DRIVER}`, '--why=forged');
    await until(() => bed.isBound(claim), 'the claim is bound');
    const own = await bed.kube.get<Volume>(volumes, { name: `pvc-${uid}` });
    assert.notEqual(own?.spec.csi?.volumeHandle, handle);
  });
});
