import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { IDENTITY_PREFIX } from '#src/election/lease.ts';
import { MAX_IN_FLIGHT } from '#src/kube/keys.ts';
import type { Claim, Event, Lease } from '#src/kube/objects.ts';
import { classes, events, leases } from '#src/kube/resources.ts';
import { readStatus } from '#src/queue/status.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { sleep } from '../harness/queue.ts';
import { until } from '../harness/until.ts';

const DATA_EPOCH = `{csi}:blessing:${DRIVER}`;
const LEASE = { namespace: 'default', name: 'sample-csi-sutler-dev' };

/** Refuses a verb on Leases as RBAC does.
 * @returns grants it */
function forbid({ cluster }: ProcessBed, verb: 'create' | 'update'): () => void {
  const message =
    `leases.coordination.k8s.io "${LEASE.name}" is forbidden: User "ingest" cannot ${verb} ` +
    'resource "leases" in API group "coordination.k8s.io" in the namespace "default"';
  const action = { kind: 'status', code: 403, message } as const;
  return cluster.api.faults.inject({ action, verb, plural: 'leases', times: Infinity });
}

async function reasonOf({ redis }: ProcessBed, { metadata }: Claim): Promise<string | undefined> {
  const { uid, namespace, name } = metadata;
  const key = { kind: 'claim', uid, namespace, name } as const;
  return (await readStatus(redis.redis, { prefix: 'csi', driver: DRIVER, key }))?.reason;
}

describe('ingest that may not write the Lease', () => {
  let bed: ProcessBed;
  let ingest: Running | undefined;
  const linesAbout = (text: string): string[] =>
    ingest?.output.filter((line) => line.includes(text)) ?? [];
  before(async () => {
    bed = await ProcessBed.open();
    await bed.startJobs();
  });
  after(() => bed.close());

  it('with --leader-election=false says so, and nothing is opened until it may', async () => {
    await bed.kube.create<Lease>(leases, 'default', { metadata: LEASE });
    const grant = forbid(bed, 'update');
    const running = await bed.startIngest('--leader-election=false');
    ingest = running;
    const claim = await bed.newClaim();
    await until(
      async () =>
        /data-epoch: can’t tell whether Redis lost data: .*HTTP 403.*grant ingest's account .*update on leases/.test(
          await readiness(running),
        ),
      'it is reported with the fix',
    );
    await until(
      async () => /no leading ingest has confirmed/.test((await reasonOf(bed, claim)) ?? ''),
      'the claim’s status says it',
    );
    // The check is repeated every second.
    await sleep(2_500);
    const begun = await bed.redis.redis.hexists(DATA_EPOCH, 'epoch');
    assert.equal(begun, 0, 'no quarantine begins');
    assert.equal(linesAbout('not confirmed').length, 1, running.output.join(''));
    assert.equal(await bed.isBound(claim), false);
    grant();
    await until(() => bed.isBound(claim), 'the claim is bound');
    await until(() => isReady(running), 'it is ready');
    assert.equal(linesAbout('tells again').length, 1, running.output.join(''));
    await running.stop();
  });

  it('in the election says so, and leads when it may', async () => {
    await bed.kube.delete(leases, LEASE);
    const grant = forbid(bed, 'create');
    const running = await bed.startIngest('--leader-election-retry-period=500ms');
    ingest = running;
    await until(
      async () =>
        /leader-election: can't use the Lease default\/sample-csi-sutler-dev.*grant ingest's account .*create/.test(
          await readiness(running),
        ),
      'it is reported with the fix',
    );
    await sleep(2_500);
    assert.equal(linesAbout('could not read or write the Lease').length, 1);
    grant();
    await until(() => isReady(running), 'it is ready');
    const claim = await bed.newClaim();
    await until(() => bed.isBound(claim), 'the claim is bound');
  });
});

describe('ingest beside another provisioner that holds the Lease', () => {
  let bed: ProcessBed;
  let renewing: NodeJS.Timeout;
  let transitions = 0;
  const holdLease = async (holder: string): Promise<void> => {
    const lease = await bed.kube.get<Lease>(leases, LEASE);
    const spec = {
      holderIdentity: holder,
      leaseDurationSeconds: 15,
      leaseTransitions: (transitions += 1),
    };
    await (lease === undefined
      ? bed.kube.create<Lease>(leases, 'default', { metadata: LEASE, spec })
      : bed.kube.update<Lease>(leases, LEASE, { ...lease, spec }));
  };
  const isNamed = async (): Promise<boolean> =>
    (await bed.redis.redis.hget(DATA_EPOCH, 'foreign')) === 'csi-provisioner-0';

  before(async () => {
    bed = await ProcessBed.open();
    await holdLease('csi-provisioner-0');
    renewing = setInterval(() => void holdLease('csi-provisioner-0').catch(() => undefined), 1_000);
    await bed.startIngest();
    await bed.startJobs();
    await until(isNamed, 'the workers are told');
  });
  after(async () => {
    clearInterval(renewing);
    await bed.close();
  });

  it('tells the workers again within two seconds after Redis was emptied', async () => {
    await bed.redis.redis.flushall();
    await until(isNamed, 'the workers are told again', 2_000);
  });

  it('tells them again after a failover lost only that', async () => {
    await bed.redis.redis.hset(DATA_EPOCH, 'epoch', 'e');
    await bed.redis.redis.hdel(DATA_EPOCH, 'foreign');
    await until(isNamed, 'the workers are told again', 2_000);
    await bed.redis.redis.hdel(DATA_EPOCH, 'epoch');
  });

  it('tells them no more once it leads itself', async () => {
    const claim = await bed.newClaim();
    clearInterval(renewing);
    await holdLease('');
    await until(
      async () =>
        (await bed.kube.get<Lease>(leases, LEASE))?.spec?.holderIdentity?.startsWith(
          IDENTITY_PREFIX,
        ),
      'it leads',
    );
    await until(() => bed.isBound(claim), 'the claim is bound');
    assert.equal(await bed.redis.redis.hexists(DATA_EPOCH, 'foreign'), 0);
  });

  it('warns of an annotation of a class that can’t be read, as soon as it is there', async () => {
    const metadata = { name: 'wrong', annotations: { [MAX_IN_FLIGHT]: 'many' } };
    await bed.kube.create(classes, undefined, { metadata, provisioner: DRIVER });
    const warnings = async () =>
      (await bed.kube.list<Event>(events, { namespace: 'default' })).items.filter(
        ({ involvedObject, reason }) =>
          involvedObject.name === 'wrong' && reason === 'InvalidAnnotation',
      );
    await until(async () => (await warnings()).length === 1, 'the warning');
  });
});
