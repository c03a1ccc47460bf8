import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type BedDriver, DriverBed } from '../harness/process-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const ONE = 'one.csi.sutler.dev';
const TWO = 'two.csi.sutler.dev';
const THREE = 'three.csi.sutler.dev';

describe('one ingest and one jobs for several drivers', () => {
  let bed: DriverBed;
  let one: BedDriver;
  let two: BedDriver;
  let three: BedDriver;
  let ingest: Running;
  let jobs: Running;
  const start = async (...flags: readonly string[]): Promise<void> => {
    ingest = await bed.startIngest(...flags);
    jobs = await bed.startJobs();
  };
  const restart = async (...flags: readonly string[]): Promise<void> => {
    for (const each of [ingest, jobs]) await each.stop();
    await start(...flags);
  };
  const provision = async (...names: readonly string[]): Promise<void> => {
    const claims = await Promise.all(names.map((name) => bed.newClaim(name)));
    for (const claim of claims)
      await until(() => bed.isBound(claim), `${claim.spec.storageClassName} is bound`, 20_000);
  };

  before(async () => {
    bed = await DriverBed.open();
    one = await bed.addDriver(ONE);
    two = await bed.addDriver(TWO);
    three = await bed.addDriver(THREE);
    await bed.serve([one, two]);
    await start();
  });
  after(() => bed.close());

  it('provision the claims of each, and ask each driver for its own alone', async () => {
    await provision(ONE, TWO);
    for (const each of [ingest, jobs]) await until(() => isReady(each), 'they are ready');
    for (const each of [one, two]) assert.equal(each.driver.volumes().length, 1, each.name);
  });

  it('share a connection of ingest to Redis, and its watches', async () => {
    const clients = String(await bed.redis.redis.client('LIST')).split('\n');
    assert.equal(clients.filter((each) => each.includes(' name=sutler-ingest ')).length, 1);
    const page = await (await fetch(`${ingest.url}/metrics`)).text();
    const lists = /^sutler_kube_reflector_lists_total\{resource="persistentvolumeclaims"\} (\d+)/m;
    assert.equal(lists.exec(page)?.[1], '1');
  });

  it('count for each driver', async () => {
    const page = await (await fetch(`${jobs.url}/metrics`)).text();
    for (const name of [ONE, TWO])
      assert.match(page, new RegExp(`sutler_queue_runs_total\\{driver="${name}",kind="claim"`));
  });

  it('serve one that was added once they start again, with the claims of before', async () => {
    const waiting = await bed.newClaim(THREE);
    await bed.serve([one, two, three]);
    await restart();
    await until(() => bed.isBound(waiting), 'it is served', 20_000);
    await provision(ONE);
  });

  it('take other limits and flags when they start, and drop limits that are gone', async () => {
    const limits = async (): Promise<string> => {
      const { concurrency, max } = await bed.redis.redis.hgetall(`{csi}:claims.${ONE}:meta`);
      return `${concurrency} ${max}`;
    };
    const keys = ['max-jobs-in-flight: 3', 'max-jobs-per-second: 7', 'volume-name-prefix: other'];
    await bed.serve([one], keys);
    await restart();
    await until(async () => (await limits()) === '3 7', 'both limits are stored', 20_000);
    await provision(ONE);
    assert.ok(one.driver.volumes().some(({ name }) => name.startsWith('other-')));
    await bed.serve([one]);
    await restart();
    await until(async () => (await limits()) === 'undefined undefined', 'removed', 20_000);
  });

  it('serve none that names a gateway of another driver', async () => {
    await bed.serve([one, { ...two, name: 'four.csi.sutler.dev' }]);
    await restart();
    const line = /four\S*\/driver: .*its driver is two\.csi.*serves four\.csi/m;
    for (const each of [ingest, jobs]) {
      await until(async () => line.test(await readiness(each)), String(line), 20_000);
      await until(() => isReady(each), 'the other one is served', 20_000);
    }
    const claim = await bed.newClaim(TWO);
    await provision(ONE);
    assert.equal(await bed.isBound(claim), false);
  });

  it('serve them without watches, with --event-source=webhook', async () => {
    await bed.serve([one, two]);
    await restart('--event-source=webhook', '--resync-interval=1s');
    await provision(ONE, TWO);
  });

  it('go on with the others while one is down, and name it', async () => {
    await one.close();
    const waiting = await bed.newClaim(ONE);
    await provision(TWO);
    const isNamed = async (): Promise<boolean> =>
      /^\[-\]one\.csi\.sutler\.dev\/driver: /m.test(await readiness(jobs));
    await until(isNamed, 'jobs names it');
    assert.equal(await isReady(jobs), true);
    assert.equal(await bed.isBound(waiting), false);
  });
});
