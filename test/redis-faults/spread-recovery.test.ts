import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it, type TestContext } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { until } from '../harness/until.ts';
import { Processes } from './processes.ts';

const OUTSTANDING = 1_000;
/** Claims that are created during the quarantine. */
const WAITING = 400;
const QUARANTINE_MS = 6_000;
/** The size of the volumes that the driver has space for. */
const ADMITTED = '2Mi';

/** ingest and jobs with a thousand claims that the driver refuses for want of space, each of which
 * has to be tried again after a loss of Redis' data. */
describe('after Redis was emptied', () => {
  let processes: Processes;
  const outstanding = new Set<string>();
  /** The first CreateVolume of each volume since the loss of data, by its name. */
  const firstCalls = new Map<string, number>();
  const deletions: number[] = [];
  let bound: Claim;

  before(async () => {
    processes = await Processes.open({
      flags: ['--timeout=2s', `--write-allowance=${QUARANTINE_MS - 2_000}ms`],
      // A key that was refused is not tried again before the test is over.
      jobsFlags: ['--retry-interval-start=10h', '--retry-interval-max=10h', '--settle-time=100ms'],
      onCall: answer,
    });
    bound = await processes.newClaim(ADMITTED);
    await until(() => processes.isBound(bound), 'a claim is bound');
    await newClaims(OUTSTANDING, outstanding);
    await until(() => haveAll(outstanding), 'the driver has refused all others');
  });
  beforeEach(() => firstCalls.clear());
  after(() => processes.close());

  it('tries the outstanding claims one after the other, and new work at once', async (t) => {
    await processes.redis.redis.flushall();
    await until(() => firstCalls.size > OUTSTANDING / 10, 'some are tried');
    const startedMs = Date.now();
    const claim = await processes.newClaim(ADMITTED);
    await processes.kube.delete(claims, { namespace: 'default', name: bound.metadata.name });
    await until(() => processes.isBound(claim), 'a new claim is bound');
    await until(() => deletions.length > 0, 'the volume of a deleted claim is deleted');
    t.diagnostic(`new work was done after ${Date.now() - startedMs} ms`);
    assert.ok(firstCalls.size < OUTSTANDING / 2, 'most outstanding claims still wait');
    await until(() => haveAll(outstanding), 'all are tried');
    const spread = spreadOf(outstanding, t);
    assert.ok(spread.busiest <= 250, 'about a hundred a second');
  });

  it('tries claims that waited for the quarantine not all at its end', async (t) => {
    await processes.redis.redis.flushall();
    const emptiedMs = Date.now();
    const waiting = new Set<string>();
    await newClaims(WAITING, waiting);
    await until(() => haveAll(waiting), 'all are tried');
    const spread = spreadOf(waiting, t);
    assert.ok(spread.firstMs - emptiedMs >= QUARANTINE_MS, 'none is tried in the quarantine');
    assert.ok(spread.busiest <= WAITING / 2, 'at most half of them within a second');
  });

  function answer({ method, request }: DriverCall): void {
    if (method === 'DeleteVolume') deletions.push(Date.now());
    if (method !== 'CreateVolume') return;
    const { name, capacityRange } = request as CreateVolumeRequest;
    if (!firstCalls.has(name)) firstCalls.set(name, Date.now());
    if (capacityRange?.requiredBytes === 1n << 20n)
      throw new DriverStatus(Code.ResourceExhausted, 'no space');
  }

  async function newClaims(count: number, volumes: Set<string>): Promise<void> {
    for (let i = 0; i < count; i += 20)
      for (const claim of await Promise.all(Array.from({ length: 20 }, () => processes.newClaim())))
        volumes.add(`pvc-${claim.metadata.uid}`);
  }

  function haveAll(volumes: ReadonlySet<string>): boolean {
    return [...volumes].every((volume) => firstCalls.has(volume));
  }

  /** When the first call came, and how many came in the busiest second. */
  function spreadOf(volumes: ReadonlySet<string>, t: TestContext) {
    const times = [...volumes].map((volume) => firstCalls.get(volume) ?? 0).sort((a, b) => a - b);
    const [firstMs = 0, lastMs = 0] = [times[0], times.at(-1)];
    const counts = times.map(
      (fromMs, i) => times.slice(i).filter((ms) => ms < fromMs + 1_000).length,
    );
    const busiest = Math.max(...counts);
    t.diagnostic(
      `${times.length} first calls in ${lastMs - firstMs} ms, ${busiest} in the busiest second`,
    );
    return { firstMs, busiest };
  }
});
