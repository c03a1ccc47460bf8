import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type BedDriver, DriverBed } from '../harness/driver-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const NAMES = ['one', 'two', 'three', 'four', 'five'].map((name) => `${name}.csi.sutler.dev`);

describe('one ingest and one jobs for five drivers', () => {
  let bed: DriverBed;
  let drivers: BedDriver[];
  let ingest: Running;
  let jobs: Running;
  const driver = (index: number): BedDriver => {
    const found = drivers[index];
    assert.ok(found);
    return found;
  };
  const provision = async (names: readonly string[]): Promise<void> => {
    const claims = await Promise.all(names.map((name) => bed.newClaim(name)));
    for (const claim of claims)
      await until(() => bed.isBound(claim), `${claim.spec.storageClassName} is bound`);
  };

  before(async () => {
    bed = await DriverBed.open();
    drivers = await Promise.all(NAMES.map((name) => bed.addDriver(name)));
    await bed.serve(drivers);
    ingest = await bed.startIngest();
    jobs = await bed.startJobs();
  });
  after(() => bed.close());

  it('provision the claims of each, and ask each driver for its own alone', async () => {
    await provision(NAMES);
    for (const each of [ingest, jobs]) await until(() => isReady(each), 'they are ready');
    for (const each of drivers) assert.equal(each.driver.volumes().length, 1, each.name);
  });

  it('share a connection of ingest to Redis, and its watches', async () => {
    const clients = String(await bed.redis.redis.client('LIST')).split('\n');
    const of = (name: string): number =>
      clients.filter((client) => client.includes(` name=${name} `)).length;
    assert.equal(of('sutler-ingest'), 1);
    const page = await (await fetch(`${ingest.url}/metrics`)).text();
    const lists = /^sutler_kube_reflector_lists_total\{resource="persistentvolumeclaims"\} (\d+)/m;
    assert.equal(lists.exec(page)?.[1], '1');
  });

  it('count for each driver', async () => {
    const page = await (await fetch(`${jobs.url}/metrics`)).text();
    for (const name of NAMES)
      assert.match(page, new RegExp(`sutler_queue_runs_total\\{driver="${name}",kind="claim"`));
  });

  it('goes on with the others while one is down, and names it', async () => {
    await driver(0).close();
    const waiting = await bed.newClaim(NAMES[0] ?? '');
    await provision(NAMES.slice(1));
    const isNamed = async (): Promise<boolean> =>
      /^\[-\]one\.csi\.sutler\.dev\/driver: /m.test(await readiness(jobs));
    await until(isNamed, 'jobs names it');
    assert.equal(await isReady(jobs), true);
    assert.equal(await bed.isBound(waiting), false);
  });
});

describe('several drivers without watches', () => {
  it('are served by one ingest with --event-source=webhook', async () => {
    const bed = await DriverBed.open();
    try {
      const names = NAMES.slice(0, 2);
      const drivers = await Promise.all(names.map((name) => bed.addDriver(name)));
      await bed.serve(drivers);
      await bed.startIngest('--event-source=webhook', '--resync-interval=1s');
      await bed.startJobs();
      const claims = await Promise.all(names.map((name) => bed.newClaim(name)));
      for (const claim of claims)
        await until(() => bed.isBound(claim), `${claim.spec.storageClassName} is bound`, 20_000);
    } finally {
      await bed.close();
    }
  });
});
