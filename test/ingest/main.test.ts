import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { IDENTITY_PREFIX } from '#src/election/lease.ts';
import { readDriverNote } from '#src/hints/driver-note.ts';
import { MAX_IN_FLIGHT } from '#src/kube/keys.ts';
import type { Event, Lease } from '#src/kube/objects.ts';
import { classes, events, leases } from '#src/kube/resources.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const LEASE = { namespace: 'default', name: 'sample-csi-sutler-dev' };

describe('ingest', () => {
  let bed: ProcessBed;
  let ingest: Running;
  const linesAbout = (text: string): number =>
    ingest.output.filter((line) => line.includes(text)).length;
  /** Resolves when the API server has got this request twice more. */
  const isTriedTwice = async (request: string): Promise<void> => {
    const tries = (): number => bed.cluster.api.requests.snapshot()[request] ?? 0;
    const before = tries();
    await until(() => tries() >= before + 2, `${request} is tried again`);
  };
  before(async () => {
    bed = await ProcessBed.open();
    await bed.startJobs();
  });
  after(() => bed.close());

  it('that may not write the Lease says so once, and enqueues nothing until it may', async () => {
    const message =
      `leases.coordination.k8s.io "${LEASE.name}" is forbidden: User "ingest" cannot update ` +
      'resource "leases" in API group "coordination.k8s.io" in the namespace "default"';
    await bed.kube.create<Lease>(leases, 'default', { metadata: LEASE });
    const action = { kind: 'status', code: 403, message } as const;
    const fault = { action, verb: 'update', plural: 'leases', times: Infinity } as const;
    const grant = bed.cluster.api.faults.inject(fault);
    ingest = await bed.startIngest('--leader-election=false');
    const claim = await bed.newClaim();
    const trouble = /leader: nothing is enqueued: .*HTTP 403.*cannot update resource "leases"/;
    await until(async () => trouble.test(await readiness(ingest)), 'it is reported');
    const text = 'nothing is enqueued; trying again';
    await until(() => linesAbout(text) > 0, 'it is logged');
    await isTriedTwice('update leases');
    assert.equal(linesAbout(text), 1);
    assert.equal(await bed.isBound(claim), false);
    grant();
    await until(() => bed.isBound(claim), 'the claim is bound');
    await until(() => isReady(ingest), 'it is ready');
    assert.equal(linesAbout('enqueues claims and volumes again'), 1);
    await ingest.stop();
  });

  it('begins no claim while another provisioner leads, which it names until then', async () => {
    const hold = async (holderIdentity: string): Promise<void> => {
      const lease = (await bed.kube.get<Lease>(leases, LEASE)) ?? assert.fail();
      const leaseTransitions = (lease.spec?.leaseTransitions ?? 0) + 1;
      const spec = { ...lease.spec, holderIdentity, leaseDurationSeconds: 15, leaseTransitions };
      await bed.kube.update<Lease>(leases, LEASE, { ...lease, spec });
    };
    const isNamed = async (): Promise<boolean> => {
      const place = { redis: bed.redis.redis, prefix: 'csi', driver: DRIVER };
      return (await readDriverNote(place)).otherProvisioner === 'csi-provisioner-0';
    };
    await hold('csi-provisioner-0');
    const renewing = setInterval(() => void hold('csi-provisioner-0').catch(() => {}), 1_000);
    ingest = await bed.startIngest('--leader-election-retry-period=500ms');
    await until(isNamed, 'people are told');
    await bed.redis.redis.flushall();
    const claim = await bed.newClaim();
    await until(isNamed, 'they are told again after Redis was emptied');
    assert.equal(await bed.isBound(claim), false);
    clearInterval(renewing);
    await hold('');
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
