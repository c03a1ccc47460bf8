import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Event } from '#src/kube/objects.ts';
import { classes, events } from '#src/kube/resources.ts';
import { readStatus } from '#src/queue/status.ts';
import { type BedDriver, DriverBed } from '../harness/driver-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const ONE = 'one.csi.sutler.dev';
const TWO = 'two.csi.sutler.dev';

describe('a start with another --driver-config', () => {
  let bed: DriverBed;
  let one: BedDriver;
  let two: BedDriver;
  let running: readonly Running[] = [];
  const restart = async (): Promise<void> => {
    for (const each of running) await each.stop();
    running = [await bed.startIngest(), await bed.startJobs()];
  };
  const provision = async (driver: string): Promise<void> => {
    const claim = await bed.newClaim(driver);
    await until(() => bed.isBound(claim), 'the claim is bound', 15_000);
  };

  before(async () => {
    bed = await DriverBed.open();
    [one, two] = await Promise.all([bed.addDriver(ONE), bed.addDriver(TWO)]);
    await bed.serve([one]);
    await restart();
    await provision(ONE);
  });
  after(() => bed.close());

  it('has a driver that was added served, with the claims of before', async () => {
    const waiting = await bed.newClaim(TWO);
    await bed.serve([one, two]);
    await restart();
    await until(() => bed.isBound(waiting), 'it is served', 15_000);
    await provision(ONE);
  });

  it('changes limits and other flags, and removes limits that are gone', async () => {
    const limits = async (): Promise<string> => {
      const { concurrency, max } = await bed.redis.redis.hgetall(`{csi}:claims.${ONE}:meta`);
      return `${concurrency} ${max}`;
    };
    const keys = ['max-jobs-in-flight: 3', 'max-jobs-per-second: 7', 'volume-name-prefix: other'];
    await bed.serve([one], keys);
    await restart();
    await until(async () => (await limits()) === '3 7', 'both limits are stored', 15_000);
    await provision(ONE);
    assert.ok(one.driver.volumes().some(({ name }) => name.startsWith('other-')));
    await bed.serve([one]);
    await restart();
    await until(async () => (await limits()) === 'undefined undefined', 'removed', 15_000);
  });

  it('is not needed for the limits of a class, which its annotations change', async () => {
    const annotate = (annotations: Readonly<Record<string, string | null>>) =>
      bed.kube.patch(
        classes,
        { name: ONE },
        { type: 'merge', body: { metadata: { annotations } } },
      );
    await annotate({ 'sutler.dev/max-in-flight': '0', 'sutler.dev/creation-timeout': 'long' });
    const warning = async (): Promise<string | undefined> => {
      const list = await bed.kube.list<Event>(events, { namespace: 'default' });
      return list.items.find(({ involvedObject: { kind } }) => kind === 'StorageClass')?.message;
    };
    await until(async () => (await warning()) !== undefined, 'a warning on the class', 15_000);
    assert.match(
      (await warning()) ?? '',
      /^annotation sutler.dev\/creation-timeout is ignored: "long" is .+; write a duration/,
    );
    const claim = await bed.newClaim(ONE);
    const { uid } = claim.metadata;
    const place = { prefix: 'csi', driver: ONE, key: { kind: 'claim', uid } } as const;
    const isPaused = async () =>
      /is paused/.test((await readStatus(bed.redis.redis, place))?.reason ?? '');
    await until(isPaused, 'it waits', 15_000);
    await annotate({ 'sutler.dev/max-in-flight': null, 'sutler.dev/creation-timeout': null });
    await until(() => bed.isBound(claim), 'the claim is bound', 15_000);
  });

  it('that names a gateway of another driver does not serve that one', async () => {
    await bed.serve([one, { ...two, name: 'three.csi.sutler.dev' }]);
    await restart();
    const line = /three\S*\/driver: .*the driver behind it is two\.csi.*and three\.csi/m;
    for (const each of running) {
      await until(async () => line.test(await readiness(each)), String(line), 15_000);
      await until(() => isReady(each), 'the other one is served', 15_000);
    }
    const claim = await bed.newClaim(TWO);
    await provision(ONE);
    assert.equal(await bed.isBound(claim), false);
  });
});
