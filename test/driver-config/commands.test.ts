import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { registerDriver } from '#src/queue/queues.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startChild } from '../../sandbox/children.ts';
import { DriverBed } from '../harness/process-bed.ts';
import { urlOf } from '../harness/redis-users.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(new URL('../../../dist/cli.js', import.meta.url));
const NAMES = ['one.csi.sutler.dev', 'two.csi.sutler.dev'];
const PATH = process.env['PATH'] ?? '';

describe('--driver-config', () => {
  let bed: DriverBed;
  const closers = new Closers();
  before(async () => {
    bed = await DriverBed.open();
    closers.add('bed', () => bed.close());
    await bed.serve(await Promise.all(NAMES.map((name) => bed.addDriver(name))));
  });
  after(async () => {
    assert.deepEqual(await closers.close(), []);
  });

  it('has sutler all serve several drivers without a gateway of its own', async () => {
    const args = [
      `--kubeconfig=${bed.cluster.kubeconfig}`,
      `--driver-config=${bed.file}`,
      '--leader-election-namespace=default',
      '--dashboard-address=127.0.0.1:0',
    ];
    const all = startChild(
      {
        name: 'all',
        command: [process.execPath, CLI, 'all', ...args],
        env: { PATH },
        output: () => undefined,
      },
      { log: silentLog, onUsageError: () => undefined },
    );
    closers.add('all', () => all.stop(30_000));
    const facts = await all.announced;
    assert.ok('dashboard' in facts && !('gateway' in facts), JSON.stringify(facts));
    for (const name of NAMES) {
      const claim = await bed.newClaim(name);
      await until(() => bed.isBound(claim), name, 15_000);
    }
  });

  const audit = (...args: readonly string[]) =>
    runSutler(
      ['audit', `--kubeconfig=${bed.cluster.kubeconfig}`, `--driver-config=${bed.file}`, ...args],
      { REDIS_URL: urlOf('operator', bed.redis.url) },
    );

  it('has sutler audit look at the driver that is named', async () => {
    const [, driver = ''] = NAMES;
    // The processes of the test above have a Redis of their own.
    await registerDriver({ redis: bed.redis.redis, prefix: 'csi', driver }, '');
    const { code, out, err } = await audit(`--driver-name=${driver}`);
    assert.equal(code, 0, err);
    assert.match(out, /two\.csi\.sutler\.dev/);
  });

  it('refuses an audit of no driver and of one that the file does not name', async () => {
    assert.match((await audit()).err, /--driver-name is missing/);
    const { code, err } = await audit('--driver-name=three');
    assert.equal(code, 2);
    assert.match(err, /names no driver three; it names one\.csi\.sutler\.dev, two/);
  });

  it('ends a process with status 2 if the file is not valid', async () => {
    await bed.write(`drivers:\n  one:\n    gateway: unix:///a\n    timeout: 10\n`);
    for (const name of ['ingest', 'jobs']) {
      const { code, err } = await runSutler([name, `--driver-config=${bed.file}`], {});
      assert.equal(code, 2);
      assert.match(err, /--driver-config \S+: driver one: timeout: "10" is not a duration/);
    }
  });
});
