import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { heartbeatKey, queueName } from '#src/queue/queue-keys.ts';
import { registerQueues } from '#src/queue/queues.ts';
import { redisDrain } from '#src/records/provisioning-pause.ts';
import { DUPLICATE_LEFT } from '#src/records/forget.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { plannedRequest } from '../harness/planned-request.ts';
import { redisUsers, urlOf } from '../harness/redis-users.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';

const CLI = new URL('../../../dist/cli.js', import.meta.url).pathname;
const DRIVER = 'd.example';

describe('sutler drain', () => {
  let server: TestRedis;
  let redis: Redis;
  const sutler = (...args: string[]) =>
    runSutler(args, { REDIS_URL: urlOf('operator', server.url) });
  const records = (ownMs: number): VolumeRecords =>
    new VolumeRecords({ redis, prefix: 'csi', driver: DRIVER, ownMs, settleMs: 60_000 });
  const open = async (uid: string, ownMs = 60_000) =>
    records(ownMs).openCreate(uid, {
      owner: uid,
      job: { kind: 'claim', uid, namespace: 'ns', name: `claim-${uid}` },
      planned: plannedRequest(),
      mode: 'plan',
    });
  const isDrained = async (): Promise<boolean> =>
    (await redisDrain(redis, 'csi', DRIVER).read()).isDrained;

  before(async () => {
    server = await startTestRedis({ settings: redisUsers() });
    redis = server.redis;
  });
  after(() => server.close());
  beforeEach(async () => {
    await redis.flushall();
    const store = redisDataEpochStore(redis, 'csi', DRIVER);
    await store.begin({ id: 'e', quarantineMs: 0, sequence: 0 });
    await registerQueues(redis, 'csi', [{ name: 'claims.d', driver: DRIVER, kind: 'claim' }]);
  });

  it('sets the drain, and says that sutler can be taken out if nothing is open', async () => {
    const { code, out, err } = await sutler('drain', `--driver-name=${DRIVER}`);
    assert.equal(code, 0, out + err);
    assert.match(out, /no volume record is open; sutler can be taken out: stop its ingest/);
    assert.match(out, /0 claims and 0 volumes wait here/);
    assert.equal(await isDrained(), true);
  });

  it('says what is open, what each waits for, and that no worker lives', async () => {
    await open('busy');
    await open('left');
    await records(60_000).leaveAmbiguous('left', 'left', 'Unavailable');
    await open('doubtful');
    await records(60_000).leaveAmbiguous('doubtful', 'doubtful', 'DeadlineExceeded');
    await records(60_000).openExisting('doubtful', {
      owner: 'again',
      job: { kind: 'claim', uid: 'doubtful', namespace: 'ns', name: 'claim-doubtful' },
    });
    await records(60_000).closeRefused('doubtful', 'again', 'ResourceExhausted');
    const { code, out } = await sutler('drain', `--driver-name=${DRIVER}`);
    assert.equal(code, 1, out);
    assert.match(out, /3 volume records are open \(1 suspect, 2 creating, 0 deleting\)/);
    assert.match(out, /no worker was seen: start jobs/);
    assert.match(
      out,
      /suspect {2}ns\/claim-doubtful {2}doubtful {2}the driver refused \(ResourceExh/,
    );
    assert.match(out, /creating {2}ns\/claim-busy {2}busy {2}a run has it, for \d+ s at most/);
    assert.match(out, /left {2}its CreateVolume is sent again after Unavailable, since the end/);
  });

  it('says of a record that only an operator can end which command does', async () => {
    await open('double');
    const answer = { handle: 'zone-1/v', context: {}, capacityBytes: '1', topology: [] };
    await records(60_000).leaveAnswered('double', 'double', answer, DUPLICATE_LEFT);
    const { code, out } = await sutler('drain', `--driver-name=${DRIVER}`);
    assert.equal(code, 1, out);
    assert.match(out, /double {2}the driver’s answer names another volume.*sutler forget double /);
  });

  it('says nothing about workers while one lives', async () => {
    await open('busy');
    const [seconds] = await redis.time();
    const key = heartbeatKey('csi', queueName('claim', DRIVER));
    await redis.set(key, `${Number(seconds) * 1000} 0`);
    assert.doesNotMatch((await sutler('drain', `--driver-name=${DRIVER}`)).out, /start jobs/);
  });

  it('drains the only driver where none is named, and prints JSON with -o json', async () => {
    await open('busy');
    const { code, out } = await sutler('drain', '-o', 'json');
    const {
      driver,
      isDrained: isSet,
      records: left,
    } = JSON.parse(out) as {
      driver: string;
      isDrained: boolean;
      records: { id: string }[];
    };
    assert.deepEqual([code, driver, isSet, left.map(({ id }) => id)], [1, DRIVER, true, ['busy']]);
  });

  it('that is interrupted while it waits does not end with status 0', async () => {
    await open('busy');
    const argv = [CLI, 'drain', '--wait'];
    const env = { PATH: process.env['PATH'], REDIS_URL: urlOf('operator', server.url) };
    const waiting = spawn(process.execPath, argv, { env });
    const ended = once(waiting, 'exit');
    await once(waiting.stdout, 'data');
    waiting.kill('SIGINT');
    assert.deepEqual(await ended, [1, null]);
  });

  it('names another provisioner that leads', async () => {
    await redisDataEpochStore(redis, 'csi', DRIVER).setOtherProvisioner('csi-provisioner-0');
    const { out } = await sutler('drain', `--driver-name=${DRIVER}`);
    assert.match(out, /csi-provisioner-0 holds the driver's Lease/);
    assert.match(out, /can be taken out: stop its processes/);
  });

  it('waits until nothing is open, and sets the drain again in an emptied Redis', async () => {
    await open('last');
    const waiting = sutler('drain', `--driver-name=${DRIVER}`, '--wait');
    await until(isDrained, 'the drain is set');
    await redis.hdel('{csi}:blessing:d.example', 'drain');
    await until(isDrained, 'the drain is set again');
    await records(60_000).closeStored('last', 'last');
    const { code, out } = await waiting;
    assert.equal(code, 0, out);
    assert.match(out, /Z 1 open volume records\n.*Z 0 open volume records\n/);
  });

  it('waits no longer than --wait-limit, and does not advise --wait then', async () => {
    await open('last');
    const { code, out } = await sutler(
      'drain',
      `--driver-name=${DRIVER}`,
      '--wait',
      '--wait-limit=300ms',
    );
    assert.equal(code, 1);
    assert.match(out, /1 volume records are open/);
    assert.match(out, /^drop what can never end with sutler forget UID$/m);
  });

  it('is ended by --undo', async () => {
    await sutler('drain', `--driver-name=${DRIVER}`);
    const { code, out } = await sutler('drain', `--driver-name=${DRIVER}`, '--undo');
    assert.equal(code, 0);
    assert.match(out, /the drain of d\.example is ended/);
    assert.equal(await isDrained(), false);
    assert.match(
      (await sutler('drain', `--driver-name=${DRIVER}`, '--undo')).out,
      /was not drained/,
    );
  });

  it('names what is missing or contradicts itself', async () => {
    await registerQueues(redis, 'csi', [{ name: 'claims.e', driver: 'e', kind: 'claim' }]);
    assert.match((await sutler('drain')).err, /--driver-name is missing: .* have d\.example, e/);
    assert.match(
      (await sutler('drain', `--driver-name=${DRIVER}`, '--undo', '--wait')).err,
      /give one of them/,
    );
  });
});
