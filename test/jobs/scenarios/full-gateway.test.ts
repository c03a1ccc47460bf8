import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { claims as claimsResource } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { openRig, type Rig } from '../rig.ts';
import { until } from '../../harness/until.ts';

const CAP = 2;

/** Counts the calls of a method that the driver works on, each for a while.
 * @returns the most that there were at once */
function observeCalls(rig: Rig, method: string): () => number {
  let running = 0;
  let most = 0;
  rig.onCall = async (call) => {
    if (call.method !== method) return undefined;
    running += 1;
    most = Math.max(most, running);
    await rig.parts.clock.sleep(50);
    running -= 1;
    return undefined;
  };
  return () => most;
}

/** The view of the Lease is about to be too old. */
const briefLease = (): Dependencies['lease'] => ({
  judge: () => ({ kind: 'may', untilMs: performance.now() + 1_000 }),
  pause: undefined,
});

describe(`a gateway that lets ${CAP} calls by at once`, () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig({ maxInFlight: CAP });
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  it('does all creations and deletions of many runs, each with one run and one call', async () => {
    const claims = await Promise.all(Array.from({ length: 12 }, () => rig.claim()));
    const mostCreations = observeCalls(rig, 'CreateVolume');
    const created = await Promise.all(claims.map((claim) => rig.provision(claim)));
    assert.deepEqual([...new Set(created.map(({ kind }) => kind))], ['done']);
    const volumes = await Promise.all(claims.map((claim) => rig.volumeOf(claim)));
    const mostDeletions = observeCalls(rig, 'DeleteVolume');
    const deleted = await Promise.all(
      volumes.map(async (volume) => {
        assert.ok(volume !== undefined);
        await rig.kube.delete(claimsResource, {
          namespace: 'default',
          name: volume.spec.claimRef?.name ?? '',
        });
        return rig.remove(await rig.setPhase(volume, 'Released'));
      }),
    );
    assert.deepEqual([...new Set(deleted.map(({ kind }) => kind))], ['done']);
    assert.deepEqual([mostCreations(), mostDeletions()], [CAP, CAP]);
    assert.equal(rig.driver.calls.filter(({ method }) => /Create|Delete/.test(method)).length, 24);
  });

  it('is not taken for a driver that is down by a run that waited in vain', async () => {
    let open: () => void = () => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    rig.onCall = ({ method }) =>
      method === 'CreateVolume' ? opened.then(() => undefined) : undefined;
    const claims = await Promise.all([1, 2, 3].map(() => rig.claim()));
    const [first, second, third] = claims;
    assert.ok(first && second && third);
    const running = [rig.provision(first), rig.provision(second)];
    await until(() => rig.driver.calls.length === CAP, 'the gateway is full');
    const outcome = await rig.provision(third, { lease: briefLease() });
    assert.ok(outcome.kind === 'later', JSON.stringify(outcome));
    assert.equal(outcome.isGatewayFull, true);
    assert.equal(outcome.isDriverDown, undefined);
    assert.match(outcome.reason, /the gateway is full: 2 calls are under way/);
    assert.equal(await rig.doubtMs(third), undefined, 'nothing is begun');
    open();
    await Promise.all(running);
  });
});
