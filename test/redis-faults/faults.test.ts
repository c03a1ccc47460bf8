import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim } from '#src/kube/objects.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { isReady, readiness, type Running } from '../harness/run-main.ts';
import { sleep } from '../harness/queue.ts';
import type { TestRedis } from '../harness/redis.ts';
import { urlOf } from '../harness/redis-users.ts';
import { until } from '../harness/until.ts';

interface Fault {
  readonly what: string;
  readonly inject: (redis: TestRedis) => Promise<unknown>;
  /** What /readyz of both says meanwhile; absent where the fault is over at once. */
  readonly trouble?: RegExp;
  /** What the log of one of them says. */
  readonly logged: RegExp;
  readonly repair?: (redis: TestRedis) => Promise<unknown>;
  /** Redis refuses what it is sent. */
  readonly isRefusal?: true;
  /** The word of a refusal that a connection outlives. */
  readonly word?: string;
}

const NO_ANSWER = /can't be reached|connection lost/;
const USERS = ['sutler-ingest', 'sutler-jobs'];

const setting = (name: string, value: string) => (redis: TestRedis) =>
  redis.redis.config('SET', name, value);

/** Changes the users of ingest and jobs. */
async function changeUsers(redis: TestRedis['redis'], ...rules: readonly string[]): Promise<void> {
  for (const user of USERS) await redis.call('ACL', 'SETUSER', user, ...rules);
}

const KILLED: Fault = {
  what: 'is killed and started with its file',
  inject: (redis) => redis.kill(),
  trouble: NO_ANSWER,
  logged: /Redis is not usable/,
  repair: (redis) => redis.start(),
};

const OUT_OF_MEMORY: Fault = {
  what: 'is out of memory',
  isRefusal: true,
  word: 'OOM',
  inject: setting('maxmemory', '1'),
  trouble: /raise maxmemory/,
  logged: /OOM/,
  repair: setting('maxmemory', '0'),
};

const FAULTS: readonly Fault[] = [
  KILLED,
  {
    what: 'is killed and started empty',
    inject: (redis) => redis.kill(),
    trouble: NO_ANSWER,
    logged: /Redis has lost its data/,
    repair: (redis) => redis.startEmpty(),
  },
  {
    what: 'is frozen',
    inject: (redis) => Promise.resolve(redis.freeze()),
    trouble: /does not answer|has not answered for \d+ s/,
    logged: /Redis does not answer/,
    repair: (redis) => Promise.resolve(redis.thaw()),
  },
  {
    what: 'refuses the login',
    isRefusal: true,
    inject: async ({ redis }) => {
      await changeUsers(redis, 'resetpass', '>another');
      for (const user of USERS) await redis.call('CLIENT', 'KILL', 'USER', user);
    },
    trouble: /WRONGPASS.*REDIS_URL/,
    logged: /WRONGPASS/,
    repair: async ({ redis, url }) => {
      await changeUsers(redis, `>${new URL(urlOf('jobs', url)).password}`);
      await redis.call('ACL', 'LOG', 'RESET');
    },
  },
  OUT_OF_MEMORY,
  {
    what: 'is made a replica',
    isRefusal: true,
    word: 'READONLY',
    inject: ({ redis }) => redis.replicaof('127.0.0.1', 1),
    trouble: /name the master in --redis-url/,
    logged: /READONLY/,
    repair: ({ redis }) => redis.replicaof('NO', 'ONE'),
  },
  {
    what: 'forbids scripts',
    isRefusal: true,
    word: 'NOPERM',
    inject: ({ redis }) => changeUsers(redis, 'clearselectors'),
    trouble: /nothing is enqueued|claims get no jobs|grant its user/,
    logged: /NOPERM/,
    repair: async ({ redis }) => {
      await changeUsers(redis, '(~{csi}:* +eval +evalsha)');
      await redis.call('ACL', 'LOG', 'RESET');
    },
  },
];

/** A bed whose driver takes 60 ms for a CreateVolume, and notes those that overlap. */
async function openBed(t: TestContext): Promise<{ bed: ProcessBed; doubles: string[] }> {
  const doubles: string[] = [];
  const calling = new Set<string>();
  const onCall = async ({ method, request, proceed }: DriverCall): Promise<unknown> => {
    if (method !== 'CreateVolume') return proceed();
    const { name } = request as CreateVolumeRequest;
    if (calling.has(name)) doubles.push(name);
    calling.add(name);
    await sleep(60);
    calling.delete(name);
    return proceed();
  };
  const bed = await ProcessBed.open({ onCall });
  t.after(() => bed.close());
  return { bed, doubles };
}

async function newClaims(bed: ProcessBed, count: number): Promise<readonly Claim[]> {
  return Promise.all(Array.from({ length: count }, () => bed.newClaim()));
}

async function untilReady(processes: readonly Running[]): Promise<void> {
  for (const running of processes) await until(() => isReady(running), 'it is ready');
}

async function untilReported(
  processes: readonly Running[],
  { word = '', trouble }: Pick<Fault, 'word' | 'trouble'>,
): Promise<void> {
  if (trouble === undefined) return;
  for (const running of processes)
    await until(async () => {
      const text = await readiness(running);
      return text.includes(word) && trouble.test(text);
    }, 'it is reported with its fix');
}

/** A process is not restarted because Redis is down. */
async function assertAlive(processes: readonly Running[]): Promise<void> {
  for (const { url } of processes) assert.equal((await fetch(`${url}/healthz`)).status, 200);
}

/** Asserts that each process logged a refusal, once for each connection. */
function assertLoggedOnce(processes: readonly Running[], before: readonly number[], word: string) {
  for (const [i, { output }] of processes.entries()) {
    const since = output.slice(before[i] ?? 0);
    const lines = since
      .filter((line) => line.includes(word))
      .map((line) => line.replace(/^\S+ /, ''));
    assert.ok(lines.length > 0, 'it is logged');
    assert.deepEqual(lines, [...new Set(lines)], 'once for each connection');
  }
}

// Side by side, because they wait most of the time; each has a Redis of its own.
describe('a Redis that', { concurrency: true }, () => {
  for (const fault of FAULTS)
    it(`${fault.what}: it is named, /healthz stays 200, and work goes on when that ends`, async (t) => {
      const { bed, doubles } = await openBed(t);
      const jobs = await bed.startJobs('--retry-interval-max=500ms', '--lock-duration=5s');
      const processes = [await bed.startIngest(), jobs];
      await untilReady(processes);
      // A run whose end Redis refuses is taken over when its lock has expired.
      const made = [...(await newClaims(bed, fault.isRefusal === true ? 0 : 5))];
      const before = processes.map(({ output }) => output.length);
      await fault.inject(bed.redis);
      made.push(...(await newClaims(bed, 5)));
      await untilReported(processes, fault);
      await assertAlive(processes);
      const logged = (): string =>
        processes.map(({ output }, i) => output.slice(before[i]).join('')).join('');
      if (fault.word !== undefined) {
        // Everything that asks Redis has done so twice.
        await sleep(4_500);
        assertLoggedOnce(processes, before, fault.word);
      }
      if (fault.trouble !== undefined && fault.word === undefined)
        await until(
          () => /Redis (is not usable|does not answer|refuses)/.test(logged()),
          'it is logged',
        );
      await fault.repair?.(bed.redis);
      const repairedMs = Date.now();
      for (const claim of made) await until(() => bed.isBound(claim), 'a claim is bound', 120_000);
      t.diagnostic(`all bound ${Date.now() - repairedMs} ms after the repair`);
      await untilReady(processes);
      assert.deepEqual(doubles, []);
      assert.match(logged(), fault.logged);
      if (fault.word !== undefined) assert.match(logged(), /takes again|again lastedMs=/);
    });

  it('is not there at the first start: it is named, and work begins when that ends', async (t) => {
    const { bed } = await openBed(t);
    await bed.redis.kill();
    const processes = [await bed.startIngest(), await bed.startJobs()];
    await untilReported(processes, KILLED);
    await assertAlive(processes);
    const claim = await bed.newClaim();
    await bed.redis.start();
    await until(() => bed.isBound(claim), 'the claim is bound');
    await untilReady(processes);
  });
});
