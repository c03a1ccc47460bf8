import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { IDENTITY_PREFIX } from '#src/election/lease.ts';
import { readDriverNote } from '#src/hints/driver-note.ts';
import { MAX_IN_FLIGHT } from '#src/kube/keys.ts';
import type { Event, Lease } from '#src/kube/objects.ts';
import { classes, events, leases } from '#src/kube/resources.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { sleep } from '../harness/queue.ts';
import { until } from '../harness/until.ts';

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

describe('ingest that may not write the Lease', () => {
  let bed: ProcessBed;
  let ingest: Running;
  const linesAbout = (text: string): number =>
    ingest.output.filter((line) => line.includes(text)).length;
  const isReported = (trouble: RegExp): Promise<void> =>
    until(async () => trouble.test(await readiness(ingest)), 'it is reported with the right');
  /** Resolves when it was logged, and the write was refused twice more. */
  const isLoggedOnce = async (text: string, write: 'create' | 'update'): Promise<void> => {
    await until(() => linesAbout(text) > 0, 'it is logged');
    const tries = (): number => bed.cluster.api.requests.snapshot()[`${write} leases`] ?? 0;
    const before = tries();
    await until(() => tries() >= before + 2, 'it is tried again');
    assert.equal(linesAbout(text), 1);
  };
  before(async () => {
    bed = await ProcessBed.open();
    await bed.startJobs();
  });
  after(() => bed.close());

  it('with --leader-election=false says so once, and nothing is enqueued until it may', async () => {
    await bed.kube.create<Lease>(leases, 'default', { metadata: LEASE });
    const grant = forbid(bed, 'update');
    ingest = await bed.startIngest('--leader-election=false');
    const claim = await bed.newClaim();
    await isReported(/leader: nothing is enqueued: .*HTTP 403.*cannot update resource "leases"/);
    await isLoggedOnce('nothing is enqueued; trying again', 'update');
    assert.equal(await bed.isBound(claim), false);
    grant();
    await until(() => bed.isBound(claim), 'the claim is bound');
    await until(() => isReady(ingest), 'it is ready');
    assert.equal(linesAbout('enqueues claims and volumes again'), 1);
    await ingest.stop();
  });

  it('in the election says so once, and leads when it may', async () => {
    await bed.kube.delete(leases, LEASE);
    const grant = forbid(bed, 'create');
    ingest = await bed.startIngest('--leader-election-retry-period=500ms');
    await isReported(/leader-election: create leases .*HTTP 403.*cannot create resource "leases"/);
    await isLoggedOnce('could not read or write the Lease', 'create');
    grant();
    await until(() => isReady(ingest), 'it is ready');
  });
});

describe('ingest beside another provisioner that holds the Lease', () => {
  let bed: ProcessBed;
  let renewing: NodeJS.Timeout;
  let transitions = 0;
  const holdLease = async (holderIdentity: string): Promise<void> => {
    const lease = await bed.kube.get<Lease>(leases, LEASE);
    transitions += 1;
    const spec = { holderIdentity, leaseDurationSeconds: 15, leaseTransitions: transitions };
    await (lease === undefined
      ? bed.kube.create<Lease>(leases, 'default', { metadata: LEASE, spec })
      : bed.kube.update<Lease>(leases, LEASE, { ...lease, spec }));
  };
  const isNamed = async (): Promise<boolean> => {
    const place = { redis: bed.redis.redis, prefix: 'csi', driver: DRIVER };
    return (await readDriverNote(place)).otherProvisioner === 'csi-provisioner-0';
  };

  before(async () => {
    bed = await ProcessBed.open();
    await holdLease('csi-provisioner-0');
    renewing = setInterval(() => void holdLease('csi-provisioner-0').catch(() => undefined), 1_000);
    await bed.startIngest();
    await bed.startJobs();
    await until(isNamed, 'people are told');
  });
  after(async () => {
    clearInterval(renewing);
    await bed.close();
  });

  it('tells people again after Redis was emptied', async () => {
    await bed.redis.redis.flushall();
    await until(isNamed, 'they are told again');
  });

  it('begins no claim before it leads, and says no more that another leads then', async () => {
    const claim = await bed.newClaim();
    await sleep(500);
    assert.equal(await bed.isBound(claim), false);
    clearInterval(renewing);
    await holdLease('');
    await until(() => bed.isBound(claim), 'the claim is bound');
    const lease = await bed.kube.get<Lease>(leases, LEASE);
    assert.ok(lease?.spec?.holderIdentity?.startsWith(IDENTITY_PREFIX));
    await until(async () => !(await isNamed()), 'nobody is named');
  });

  it('warns of an annotation of a class that can’t be read, as soon as it is there', async () => {
    const metadata = { name: 'wrong', annotations: { [MAX_IN_FLIGHT]: 'many' } };
    await bed.kube.create(classes, undefined, { metadata, provisioner: DRIVER });
    const warnings = async () =>
      (await bed.kube.list<Event>(events, { namespace: 'default' })).items.filter(
        (event) => event.involvedObject.name === 'wrong' && event.reason === 'InvalidAnnotation',
      );
    await until(async () => (await warnings()).length === 1, 'the warning');
  });
});
