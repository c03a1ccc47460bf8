import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { until } from '../harness/until.ts';
import { ProcessBed } from '../harness/process-bed.ts';

const OUTSTANDING = 600;
/** The size of the volumes that the driver has space for. */
const ADMITTED = '2Mi';

/** ingest and jobs with hundreds of claims that the driver refuses for want of space, each of which
 * has to be tried again after a loss of Redis' data. */
describe('after Redis was emptied', () => {
  let bed: ProcessBed;
  const outstanding = new Set<string>();
  /** Of which volumes the driver was asked since the loss of data, by their names. */
  const asked = new Set<string>();
  let deletions = 0;
  let bound: Claim;

  before(async () => {
    bed = await ProcessBed.open({
      flags: ['--timeout=2s', '--settle-time=100ms'],
      onCall: answer,
    });
    await bed.startIngest();
    // A key that was refused is not tried again before the test is over.
    const retries = ['--retry-interval-start=10h', '--retry-interval-max=10h'];
    await bed.startJobs(...retries);
    bound = await bed.newClaim(ADMITTED);
    await until(() => bed.isBound(bound), 'a claim is bound');
    await newClaims(OUTSTANDING, outstanding);
    await until(() => haveAll(outstanding), 'the driver has refused all others');
  });
  after(() => bed.close());

  it('tries the outstanding claims one after the other, and new work at once', async () => {
    asked.clear();
    await bed.redis.redis.flushall();
    await until(() => asked.size > OUTSTANDING / 10, 'some are tried');
    const claim = await bed.newClaim(ADMITTED);
    await bed.kube.delete(claims, { namespace: 'default', name: bound.metadata.name });
    await until(() => bed.isBound(claim), 'a new claim is bound');
    await until(() => deletions > 0, 'the volume of a deleted claim is deleted');
    assert.ok(asked.size < OUTSTANDING, 'some outstanding claims still wait');
    await until(() => haveAll(outstanding), 'all are tried');
  });

  function answer({ method, request }: DriverCall): void {
    if (method === 'DeleteVolume') deletions += 1;
    if (method !== 'CreateVolume') return;
    const { name, capacityRange } = request as CreateVolumeRequest;
    asked.add(name);
    if (capacityRange?.requiredBytes === 1n << 20n)
      throw new DriverStatus(Code.ResourceExhausted, 'no space');
  }

  async function newClaims(count: number, volumes: Set<string>): Promise<void> {
    for (let i = 0; i < count; i += 20)
      for (const claim of await Promise.all(Array.from({ length: 20 }, () => bed.newClaim())))
        volumes.add(`pvc-${claim.metadata.uid}`);
  }

  function haveAll(volumes: ReadonlySet<string>): boolean {
    return [...volumes].every((volume) => asked.has(volume));
  }
});
