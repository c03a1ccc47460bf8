import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { encodeEntry, encodeObject, journalName } from '#src/journal/journal-entry.ts';
import { leaseName } from '#src/election/lease.ts';
import type { Event } from '#src/kube/objects.ts';
import { classes, events, leases } from '#src/kube/resources.ts';
import { statusKey } from '#src/queue/queue-keys.ts';
import { type BedDriver, DriverBed } from '../harness/driver-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const ONE = 'one.csi.sutler.dev';
const TWO = 'two.csi.sutler.dev';

describe('a change of --driver-config', () => {
  let bed: DriverBed;
  let one: BedDriver;
  let two: BedDriver;
  let ingest: Running;
  let jobs: Running;
  const processes = (): Running[] => [ingest, jobs];
  const linesOf = ({ output }: Running, text: string): string[] =>
    output.filter((line) => line.includes(text));
  const provision = async (driver: string): Promise<void> => {
    const claim = await bed.newClaim(driver);
    await until(() => bed.isBound(claim), 'the claim is bound', 15_000);
  };
  const shows = async (pattern: RegExp, running: Running): Promise<void> =>
    until(async () => pattern.test(await readiness(running)), String(pattern), 15_000);

  before(async () => {
    bed = await DriverBed.open();
    [one, two] = await Promise.all([bed.addDriver(ONE), bed.addDriver(TWO)]);
    await bed.serve([one]);
    ingest = await bed.startIngest();
    jobs = await bed.startJobs();
    await provision(ONE);
  });
  afterEach(async () => {
    await bed.serve([one]);
    for (const each of processes()) await until(() => isReady(each), 'ready again', 15_000);
  });
  after(() => bed.close());

  it('ends a driver that was removed, and releases its Lease', async () => {
    await bed.serve([one, two]);
    await provision(TWO);
    await bed.serve([one]);
    for (const each of processes())
      await until(async () => !(await readiness(each)).includes(TWO), 'it is gone', 15_000);
    const waiting = await bed.newClaim(TWO);
    await provision(ONE);
    assert.equal(await bed.isBound(waiting), false);
    await bed.serve([one, two]);
    await until(() => bed.isBound(waiting), 'it is served again', 15_000);
  });

  it('says how many claims of a removed driver are in the journal', async () => {
    await bed.serve([one, two]);
    await provision(TWO);
    const claim = await bed.newClaim(TWO);
    await bed.serve([one]);
    const owner = { driver: TWO, lease: leaseName(TWO) };
    await bed.kube.create(leases, 'default', {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: {
        name: journalName(owner, 9),
        annotations: encodeObject(owner, [encodeEntry(claim, undefined)]),
      },
      spec: {},
    });
    const line = /^\[!\]left-drivers: driver two.* has \d claims in the journal.*put it back/m;
    const started = await bed.startIngest();
    await shows(line, started);
    await until(() => isReady(started), 'it does its work', 15_000);
    await started.stop();
    await bed.serve([one, two]);
    await until(() => bed.isBound(claim), 'it is served again', 15_000);
  });

  it('changes limits while the driver runs, and removes them with their keys', async () => {
    const stored = (): Promise<Record<string, string>> =>
      bed.redis.redis.hgetall(`{csi}:claims.${ONE}:meta`);
    const anew = linesOf(ingest, 'it begins anew').length;
    await bed.serve([one], ['max-jobs-in-flight: 3', 'max-jobs-per-second: 7']);
    const areStored = async () => {
      const { concurrency, max, duration } = await stored();
      return concurrency === '3' && max === '7' && duration === '1000';
    };
    await until(areStored, 'both limits are stored', 15_000);
    await provision(ONE);
    await bed.serve([one]);
    const hasLimits = async () =>
      Object.keys(await stored()).some((key) => ['concurrency', 'max'].includes(key));
    await until(async () => !(await hasLimits()), 'removed', 15_000);
    assert.equal(linesOf(ingest, 'it begins anew').length, anew);
  });

  it('is not needed for the limits of a class, which its annotations change', async () => {
    const annotate = (annotations: Readonly<Record<string, string | null>>) =>
      bed.kube.patch(
        classes,
        { name: ONE },
        { type: 'merge', body: { metadata: { annotations } } },
      );
    await annotate({ 'sutler.dev/max-in-flight': '0', 'sutler.dev/max-per-second': 'many' });
    const warning = async (): Promise<string | undefined> => {
      const list = await bed.kube.list<Event>(events, { namespace: 'default' });
      return list.items.find(({ involvedObject: { kind } }) => kind === 'StorageClass')?.message;
    };
    await until(async () => (await warning()) !== undefined, 'a warning on the class', 15_000);
    assert.match(
      (await warning()) ?? '',
      /^annotation sutler.dev\/max-per-second is ignored: "many" is not a number; write a number/,
    );
    const claim = await bed.newClaim(ONE);
    const status = statusKey('csi', ONE, claim.metadata.uid);
    await until(
      async () => /is paused/.test((await bed.redis.redis.hget(status, 'reason')) ?? ''),
      'it waits',
      15_000,
    );
    await annotate({ 'sutler.dev/max-in-flight': null, 'sutler.dev/max-per-second': null });
    await until(() => bed.isBound(claim), 'the claim is bound', 15_000);
  });

  it('that can’t be used is reported by line, and the last good content stays in use', async () => {
    await bed.write(`drivers:\n  ${ONE}:\n    gateway: ${one.gateway}\n    timeout: 10\n`);
    const line = /^\[!\]driver-config: .*line 4: driver one.*: timeout: "10" is not a duration/m;
    for (const each of processes()) {
      await shows(line, each);
      assert.equal(await isReady(each), true);
    }
    await provision(ONE);
  });

  it('that names a gateway of another driver does not serve that one', async () => {
    await bed.serve([one, { ...two, name: 'three.csi.sutler.dev' }]);
    for (const each of processes()) {
      await shows(/three\S*\/driver: .*the driver behind it is two\.csi.*and three\.csi/m, each);
      assert.equal(await isReady(each), true, 'the other one is served');
    }
    const claim = await bed.newClaim(TWO);
    await provision(ONE);
    assert.equal(await bed.isBound(claim), false);
  });

  it('to a file without drivers ends them all, and says so', async () => {
    await bed.write('drivers: {}\n');
    for (const each of processes())
      await shows(/^\[!\]driver-config: .* names no driver: there is nothing to do/m, each);
  });

  it('begins a driver that was added, and the others go on', async () => {
    await provision(ONE);
    const leading = linesOf(ingest, 'leading: ').length;
    const claim = await bed.newClaim(TWO);
    await bed.serve([one, two]);
    await until(() => bed.isBound(claim), 'the claim of before is bound', 15_000);
    assert.equal(linesOf(ingest, 'leading: ').length, leading + 1, 'only the new one leads anew');
  });

  it('gives a driver its new flags', async () => {
    await bed.serve([one], ['volume-name-prefix: other']);
    await until(() => linesOf(jobs, 'it begins anew').length > 0, 'jobs noticed', 15_000);
    assert.equal(linesOf(ingest, 'it begins anew').length, 0, 'ingest has no such flag');
    await provision(ONE);
    assert.ok(one.driver.volumes().some(({ name }) => name.startsWith('other-')));
  });
});
