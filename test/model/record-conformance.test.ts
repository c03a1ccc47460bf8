import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import type { JobKey } from '#src/queue/contract.ts';
import {
  dataEpochKey,
  openingCountKey,
  openRecordsKey,
  volumeRecordKey,
} from '#src/records/key-names.ts';
import { readRecordClock } from '#src/records/record-clock.ts';
import { OwnershipLost } from '#src/records/record-ends.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import type { OpenedCreate, OpenedDelete } from '#src/records/open-results.ts';
import { plannedRequest, volumeAnswer } from '../harness/planned-request.ts';
import { startRedisServer, type TcpRedisServer } from '../harness/redis-server.ts';
import { seeded } from '../harness/seeded.ts';
import * as model from './record.ts';
import {
  ALL_RULES,
  NO_RECORD,
  OWN,
  SETTLE,
  type Opening,
  type OpenMode,
  type Recovery,
  type Reply,
  type Rules,
  type StateName,
  type VolumeRecord,
  type ReplyKind,
} from './record.ts';

/** Longer than the test runs. A tick passes by moving every time in Redis into the past. */
const TICK_MS = 3_600_000;
/** The rules that the scripts keep; all, unless a known deviation is entered here. */
const AS_BUILT: Rules = ALL_RULES;
/** Of the one volume. */
const HANDLE = 1;
const SEEDS = 150;
const STEPS = 80;

const prefix = 'csi';
const driver = 'd.example';
const id = 'u1';
const job: JobKey = { kind: 'claim', uid: id, namespace: 'ns', name: 'c' };
const planned = plannedRequest();
const recordKey = volumeRecordKey(prefix, driver, id);
const processName = 'worker';
const openKey = openRecordsKey(prefix, driver);
const countKey = openingCountKey(prefix, driver, processName);
const redisDataEpochKey = dataEpochKey(prefix, driver);

/** The model's record and the real one, side by side. */
class Pair {
  record: VolumeRecord = NO_RECORD;
  recovery: Recovery = model.NO_LOSS;
  #dataEpoch = 1;
  readonly #redis: Redis;
  #records: VolumeRecords;
  /** Data epoch of the creation that the worker remembers. */
  #remembered = 0;
  /** What a replica that lags behind has; undefined while none does. */
  #replica: Replica | undefined;
  /** Data epoch of the worker's last opening, 0 before the first. */
  #countedIn = 0;
  #isUnreplicated = false;
  #isBehind = false;
  #knowsLoss = false;
  /** Another provisioner leads. */
  #isHalted = false;

  constructor(redis: Redis) {
    this.#redis = redis;
    this.#records = this.#createWorker();
  }

  #replaceWorker(): void {
    this.#records = this.#createWorker();
    this.#countedIn = 0;
    this.#isUnreplicated = false;
    this.#knowsLoss = false;
  }

  #createWorker(): VolumeRecords {
    return new VolumeRecords({
      redis: this.#redis,
      prefix,
      driver,
      ownMs: OWN * TICK_MS,
      settleMs: SETTLE * TICK_MS,
      processName,
    });
  }

  /** Begins the first data epoch of an empty Redis. */
  async start(): Promise<void> {
    await this.#redis.flushall();
    await this.#redis.hset(redisDataEpochKey, 'epoch', 'e1', 'quarantineUntil', '0');
  }

  /** Takes the same step in both.
   * @returns the model's answer and the real one */
  step(name: StepName, owner: number, flag: boolean): Promise<Answers> {
    return this.#steps[name](owner, flag);
  }

  readonly #steps: Readonly<Record<StepName, (owner: number, flag: boolean) => Promise<Answers>>> =
    {
      openCreate: (owner, flag) => {
        const mode = flag ? 'again' : 'plan';
        return this.#openCreation(owner, mode, () =>
          this.#records.openCreate(id, { owner: ownerName(owner), job, planned, mode }),
        );
      },
      openExisting: (owner) =>
        this.#openCreation(owner, 'existing', () =>
          this.#records.openExisting(id, { owner: ownerName(owner), job }),
        ),
      openDelete: (owner) =>
        this.#open(model.openDelete(this.record, this.#opening(owner), HANDLE), () =>
          this.#records
            .openDelete(id, { owner: ownerName(owner), job, handle: 'h' })
            .then(replyKindOf),
        ),
      closeStored: (owner) =>
        this.#runBoth(model.closeStored(this.record, owner), () =>
          this.#records.closeStored(id, ownerName(owner)).then(() => 'ok'),
        ),
      closeRefused: (owner) =>
        this.#runBoth(model.closeRefused(this.record, owner, AS_BUILT), () =>
          this.#records.closeRefused(id, ownerName(owner), 'Internal'),
        ),
      leaveAmbiguous: (owner) =>
        this.#runBoth(model.leaveAmbiguous(this.record, owner), () =>
          this.#records.leaveAmbiguous(id, ownerName(owner), 'Unavailable').then(() => 'ok'),
        ),
      leaveAnswered: (owner) =>
        this.#runBoth(model.leaveAnswered(this.record, owner, HANDLE), () =>
          this.#records.leaveAnswered(id, ownerName(owner), volumeAnswer('h')).then(() => 'ok'),
        ),
      revert: (owner) =>
        this.#runBoth(model.revert(this.record, owner), () =>
          this.#records.revert(id, ownerName(owner)).then(() => 'ok'),
        ),
      closeGone: (owner) =>
        this.#runBoth(model.closeGone(this.record, owner), () =>
          this.#records.closeGone(id, ownerName(owner)).then(() => 'ok'),
        ),
      leaveDeleting: (owner) =>
        this.#runBoth(model.leaveDeleting(this.record, owner), () =>
          this.#records.leaveDeleting(id, ownerName(owner), 'Internal').then(() => 'ok'),
        ),
      endDeletion: (owner, flag) => {
        const to = flag ? 'stored' : 'gone';
        return this.#runBoth(model.endDeletion(this.record, this.#opening(owner), to), () =>
          this.#records.endDeletion(id, ownerName(owner), to),
        );
      },
      rewriteLost: () =>
        this.#records.leftOpen === 0 ? Promise.resolve(NO_ANSWERS) : this.#rewriteLost(),
      'time passes': async () => {
        await this.#passTime();
        return NO_ANSWERS;
      },
      'a day passes': async () => {
        if (this.record.expires) {
          this.record = NO_RECORD;
          await this.#redis.del(recordKey);
        }
        return NO_ANSWERS;
      },
      'another provisioner leads': async () => {
        this.#isHalted = true;
        await this.#redis.hset(redisDataEpochKey, 'foreign', 'csi-provisioner-0');
        return NO_ANSWERS;
      },
      'one of ours leads': async () => {
        this.#isHalted = false;
        await this.#redis.hdel(redisDataEpochKey, 'foreign');
        return NO_ANSWERS;
      },
      'Redis is emptied': async () => {
        this.#isHalted = false;
        this.record = NO_RECORD;
        this.recovery = { isConfirmed: false, left: 0 };
        this.#replica = undefined;
        // A worker that has noticed a loss goes on from the count that Redis had then.
        const hasCount = Number(await this.#redis.get(countKey)) > 0;
        this.#isBehind ||= this.#countedIn !== 0 && hasCount;
        await this.#redis.flushall();
        return NO_ANSWERS;
      },
      'the replica falls behind': async () => {
        this.#replica = { record: this.record, keys: await this.#readKeys(), ticks: 0 };
        this.#isUnreplicated = false;
        return NO_ANSWERS;
      },
      'Redis goes back': async () => {
        if (this.#replica === undefined) return NO_ANSWERS;
        this.record = this.#replica.record;
        this.#isBehind ||= this.#isUnreplicated;
        await this.#writeKeys(this.#replica.keys);
        await this.#movePast(this.#replica.ticks, [recordKey]);
        this.#replica = undefined;
        return NO_ANSWERS;
      },
      'the leader begins a data epoch': async () => {
        await this.#beginDataEpoch();
        return NO_ANSWERS;
      },
    };

  #opening(owner: number): Opening {
    return { owner, rules: AS_BUILT, recovery: this.recovery, isHalted: this.#isHalted };
  }

  #openCreation(owner: number, mode: OpenMode, act: () => Promise<OpenedCreate>): Promise<Answers> {
    const expected = model.openCreate(this.record, mode, this.#opening(owner));
    return this.#open(expected, () => act().then(replyKindOf));
  }

  async #open(expected: Reply, act: () => Promise<string>): Promise<Answers> {
    if (this.#isBehind) {
      this.#notice();
      return ['recovery', await act()];
    }
    const answers = await this.#runBoth(expected, act);
    if (answers[0] === 'opened' || answers[0] === 'replay') {
      this.#countedIn = this.#dataEpoch;
      this.#isUnreplicated = true;
    }
    return answers;
  }

  /** The worker finds that Redis went back. */
  #notice(): void {
    this.#isBehind = false;
    this.#replica = undefined;
    this.#knowsLoss = this.#records.leftOpen > 0;
    if (this.#countedIn === this.#dataEpoch) this.recovery = { isConfirmed: false, left: 0 };
  }

  #readKeys(): Promise<Keys> {
    return Promise.all(
      [recordKey, openKey, countKey].map(async (key) => ({
        key,
        content: await this.#redis.dumpBuffer(key),
        ttlMs: Math.max(0, await this.#redis.pttl(key)),
      })),
    );
  }

  async #writeKeys(keys: Keys): Promise<void> {
    for (const { key, content, ttlMs } of keys) {
      await this.#redis.del(key);
      if (content !== null) await this.#redis.restore(key, ttlMs, content);
    }
  }

  async #runBoth(expected: Reply, act: () => Promise<string>): Promise<Answers> {
    this.record = expected.record;
    const didRemember = this.#records.leftOpen > 0;
    const answer = await act().catch(replyKindOfError);
    const isKept = didRemember && answer === 'opened' && AS_BUILT.memoryIsKept;
    if (answer === 'replay' || (answer === 'opened' && !isKept)) this.#remembered = this.#dataEpoch;
    return [expected.kind, answer];
  }

  async #rewriteLost(): Promise<Answers> {
    const check = () => this.#records.rewriteLostRecords();
    if (this.#isBehind) this.#notice();
    const isOfEarlier = !this.recovery.isConfirmed || this.#remembered !== this.#dataEpoch;
    const left = { isOfEarlier, isLost: this.#knowsLoss };
    const answers = await this.#runBoth(
      model.rewriteLost(this.record, left, this.recovery),
      async () => {
        if ((await check()).length > 0) return 'ok';
        return this.#records.leftOpen === 0 ? 'closed' : 'busy';
      },
    );
    // A new worker goes on, so that what this one remembers of the rewritten record has no effect.
    if (answers[0] === 'ok') this.#replaceWorker();
    return answers;
  }

  async #passTime(): Promise<void> {
    this.record = model.age(this.record);
    this.recovery = { ...this.recovery, left: Math.max(0, this.recovery.left - 1) };
    if (this.#replica !== undefined) {
      const { record, keys, ticks } = this.#replica;
      this.#replica = { record: model.age(record), keys, ticks: ticks + 1 };
    }
    await this.#movePast(1, [recordKey, redisDataEpochKey]);
  }

  /** Moves every time in these keys into the past, but for the time until which `gone` refuses:
   * that passes with `a day passes`. */
  async #movePast(ticks: number, keys: readonly string[]): Promise<void> {
    const until = this.record.state === 'gone' ? [] : ['until'];
    for (const key of keys)
      for (const field of [...until, 'call', 'quarantineUntil'])
        if (Number((await this.#redis.hget(key, field)) ?? 0) > 0)
          await this.#redis.hincrby(key, field, -TICK_MS * ticks);
  }

  async #beginDataEpoch(): Promise<void> {
    if (this.recovery.isConfirmed) return;
    this.recovery = { isConfirmed: true, left: OWN + SETTLE };
    this.#replica = undefined;
    this.#dataEpoch += 1;
    // Some ms behind Redis' clock once a script has moved it on.
    const { nowMs } = await readRecordClock(this.#redis, redisDataEpochKey);
    await this.#redis.hset(
      redisDataEpochKey,
      'epoch',
      `e${this.#dataEpoch}`,
      'quarantineUntil',
      String(nowMs + OWN * TICK_MS),
    );
  }

  async #nowMs(): Promise<number> {
    const [seconds, micros] = await this.#redis.time();
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }

  /** Reads the real record in the model's terms. */
  async readReal(): Promise<VolumeRecord & { readonly isListed: boolean }> {
    const [fields, ttl, listed, nowMs] = await Promise.all([
      this.#redis.hgetall(recordKey),
      this.#redis.ttl(recordKey),
      this.#redis.hexists(openKey, id),
      this.#nowMs(),
    ]);
    const owner = Number((fields['owner'] ?? '').slice(1));
    const ambiguous = fields['amb'] === '1';
    const [beforeState, beforeMark] = (fields['prev'] ?? '').split(' ');
    const isOwned = owner !== 0;
    const beforeAmbiguous = isOwned && beforeMark === '1';
    const ticks = (ms: string | undefined): number =>
      Math.max(0, Math.ceil((Number(ms ?? 0) - nowMs) / TICK_MS + SETTLE));
    const state = (fields['state'] ?? 'none') as StateName;
    return {
      state,
      owner,
      until: isOwned ? ticks(fields['until']) : 0,
      ambiguous,
      settleTicks: ['creating', 'suspect', 'stored'].includes(state) ? ticks(fields['call']) : 0,
      wasSettled: this.record.wasSettled,
      before:
        isOwned && beforeState !== undefined && beforeState !== ''
          ? (beforeState as StateName)
          : 'none',
      beforeAmbiguous,
      answer: namesHandle(fields) ? HANDLE : 0,
      hasRequest: fields['req'] !== undefined,
      isOfEarlierTerm: this.record.isOfEarlierTerm,
      expires: ttl > 0,
      isListed: listed === 1,
    };
  }
}

type Answers = readonly [string, string];

/** Keys of Redis with their contents, as DUMP gives them. */
type Keys = readonly {
  readonly key: string;
  readonly content: Buffer | null;
  readonly ttlMs: number;
}[];

interface Replica {
  readonly record: VolumeRecord;
  readonly keys: Keys;
  /** Ticks since it fell behind. */
  readonly ticks: number;
}

/** Of a step that is no script. */
const NO_ANSWERS: Answers = ['', ''];

function ownerName(owner: number): string {
  return `w${owner}`;
}

function replyKindOf(opened: OpenedCreate | OpenedDelete): ReplyKind {
  assert.ok(opened.kind !== 'unusable');
  if (opened.kind !== 'not-yet') return opened.kind;
  return opened.isHalt ? 'halt' : 'recovery';
}

function replyKindOfError(error: unknown): string {
  if (error instanceof OwnershipLost) return 'lost';
  throw error;
}

/** The record has the driver's answer, or the handle of a deletion. */
function namesHandle({ ans, state }: Readonly<Record<string, string>>): boolean {
  return ans !== undefined || state === 'deleting' || state === 'gone';
}

const STEP_NAMES = [
  'openCreate',
  'openExisting',
  'openDelete',
  'closeStored',
  'closeRefused',
  'leaveAmbiguous',
  'leaveAnswered',
  'revert',
  'closeGone',
  'leaveDeleting',
  'endDeletion',
  'rewriteLost',
  'time passes',
  'a day passes',
  'Redis is emptied',
  'another provisioner leads',
  'one of ours leads',
  'the replica falls behind',
  'Redis goes back',
  'the leader begins a data epoch',
] as const;
type StepName = (typeof STEP_NAMES)[number];
const RARE: ReadonlySet<StepName> = new Set([
  'a day passes',
  'Redis is emptied',
  'another provisioner leads',
]);
/** The scripts that end an attempt, of a creation and of a deletion. */
const ENDS: Readonly<Record<'creating' | 'deleting', readonly StepName[]>> = {
  creating: ['closeStored', 'closeRefused', 'leaveAmbiguous', 'leaveAnswered', 'revert'],
  deleting: ['closeGone', 'leaveDeleting', 'revert'],
};

describe('the model of the volume record', () => {
  let server: TcpRedisServer;
  let redis: Redis;
  let dir: string;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-model-'));
    server = await startRedisServer({ dataDir: dir });
    redis = new Redis(server.url);
  });
  after(async () => {
    redis.disconnect();
    await server.close();
    await rm(dir, { recursive: true, force: true });
  });

  it(`equals the scripts, in ${SEEDS} sequences of ${STEPS} steps`, async () => {
    const met = new Set<string>();
    for (let seed = 1; seed <= SEEDS; seed += 1) await runSequence(redis, seed, met);
    for (const wanted of [
      'openCreate busy',
      'openCreate closed',
      'openCreate replay',
      'openExisting none',
      'openExisting replay',
      'openDelete busy',
      'openDelete gone',
      'openDelete opened',
      'openDelete settle',
      'openDelete creating',
      'openDelete recovery',
      'closeRefused removed',
      'closeRefused suspect',
      'closeStored lost',
      'closeRefused lost',
      'revert lost',
      'revert ok',
      'endDeletion ok',
      'rewriteLost ok',
      'openCreate recovery',
      'openCreate halt',
      'openDelete halt',
    ])
      assert.ok(met.has(wanted), `${wanted} never came up`);
  });
});

/** Takes random steps in both, and compares answer and record after each. Adds the steps and
 * answers that came up to `met`. */
async function runSequence(redis: Redis, seed: number, met: Set<string>): Promise<void> {
  const random = seeded(seed);
  const pair = new Pair(redis);
  await pair.start();
  const log: string[] = [];
  for (let at = 0; at < STEPS; at += 1) {
    const step = pickStep(random, pair.record);
    if (step === undefined) continue;
    const { name, owner } = step;
    const flag = random() < 0.5;
    const [expected, real] = await pair.step(name, owner, flag);
    log.push(`${name} by w${owner}${flag ? ' (flag)' : ''}: ${real}`);
    const where = `seed ${seed}, step ${at}:\n  ${log.join('\n  ')}`;
    assert.equal(real, expected, where);
    const expectedRecord = { ...pair.record, isListed: model.isOpen(pair.record) };
    assert.deepEqual(await pair.readReal(), expectedRecord, where);
    met.add(`${name} ${real}`);
  }
}

/** Picks a step, mostly in an order that runs have.
 * @returns undefined for a step to leave out */
function pickStep(
  random: () => number,
  { owner: current, state }: VolumeRecord,
): { readonly name: StepName; readonly owner: number } | undefined {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  let name = random() < 0.2 ? 'time passes' : pick(STEP_NAMES);
  let owner = pick([1, 2, 3]);
  if (RARE.has(name) && random() < 0.7) return undefined;
  if (current !== 0 && random() < 0.3) {
    name = pick(state === 'deleting' ? ENDS.deleting : ENDS.creating);
    owner = current;
  }
  // The owner of a deletion never ends a creation, nor the other way round: the scripts need not
  // prevent it.
  return owner === current && isOtherKind(name, state) ? undefined : { name, owner };
}

/** Whether a script ends a creation although a deletion is open, or the other way round. */
function isOtherKind(name: StepName, state: StateName): boolean {
  if (state === 'deleting') return ENDS.creating.includes(name) && name !== 'revert';
  return ENDS.deleting.includes(name) && name !== 'revert';
}
