import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import type { JobKey } from '#src/queue/contract.ts';
import { incarnationKey, openRecordsKey, volumeRecordKey } from '#src/records/key-names.ts';
import { startRedisServer } from '#src/redis/server.ts';
import type { RedisServer } from '#src/redis/server.ts';
import { OwnershipLost, VolumeRecords } from '#src/records/volume-record.ts';
import type { OpenedCreate, OpenedDelete } from '#src/records/open-results.ts';
import { silentLog } from '#src/runtime/log.ts';
import { plannedRequest, volumeAnswer } from '../harness/planned-request.ts';
import { seeded } from '../harness/seeded.ts';
import * as model from './record.ts';
import { ALL_RULES, NO_RECORD, OWN, SETTLE } from './record.ts';
import type {
  OpenMode,
  Opening,
  Recovery,
  Reply,
  Rules,
  StateName,
  VolumeRecord,
  Word,
} from './record.ts';

/** So long that the time which a test takes is no tick. Time passes by moving every moment that
 * Redis holds into the past. */
const TICK_MS = 3_600_000;
const AS_BUILT: Rules = ALL_RULES;
const SEEDS = 150;
const STEPS = 80;

const prefix = 'csi';
const driver = 'd.example';
const id = 'u1';
const job: JobKey = { kind: 'claim', uid: id, namespace: 'ns', name: 'c' };
const planned = plannedRequest();
const recordKey = volumeRecordKey(prefix, driver, id);
const openKey = openRecordsKey(prefix, driver);
const incarnation = incarnationKey(prefix, driver);

/** The model and the real thing, side by side. */
class Pair {
  record: VolumeRecord = NO_RECORD;
  recovery: Recovery = model.NO_LOSS;
  #epoch = 1;
  readonly #redis: Redis;
  #records: VolumeRecords;
  /** Epoch of the creation that the worker remembers. */
  #remembered = 0;

  constructor(redis: Redis) {
    this.#redis = redis;
    this.#records = this.#worker();
  }

  #worker(): VolumeRecords {
    return new VolumeRecords({
      redis: this.#redis,
      prefix,
      driver,
      ownMs: OWN * TICK_MS,
      settleMs: SETTLE * TICK_MS,
    });
  }

  /** An empty Redis for the first time. */
  async start(): Promise<void> {
    await this.#redis.flushall();
    await this.#redis.hset(incarnation, 'epoch', 'e1', 'quarantineUntil', '0');
  }

  /** Does the same to both. @returns the two answers: the model's, the real one's */
  async step(name: StepName, owner: number, flag: boolean): Promise<readonly [string, string]> {
    const text = `w${owner}`;
    const opening: Opening = { owner, rules: AS_BUILT, recovery: this.recovery };
    const before = this.record;
    switch (name) {
      case 'openCreate': {
        const mode: OpenMode = flag ? 'again' : 'plan';
        return this.#both(model.openCreate(before, mode, opening), () =>
          this.#records
            .openCreate(id, { owner: text, job, planned, mode: flag ? 'again' : 'plan' })
            .then(wordOf),
        );
      }
      case 'openExisting':
        return this.#both(model.openCreate(before, 'existing', opening), () =>
          this.#records.openExisting(id, { owner: text, job }).then(wordOf),
        );
      case 'openResolve':
        return this.#both(model.openCreate(before, 'resolve', opening), () =>
          this.#records.openResolve(id, { owner: text, job }).then(wordOf),
        );
      case 'openDelete':
        return this.#both(model.openDelete(before, opening), () =>
          this.#records.openDelete(id, { owner: text, job }).then(wordOf),
        );
      case 'closeStored':
        return this.#both(model.closeStored(before, owner, flag), () =>
          this.#records.closeStored(id, text, flag ? 'answered' : 'seen').then(() => 'ok'),
        );
      case 'closeRefused':
        return this.#both(model.closeRefused(before, owner, AS_BUILT), () =>
          this.#records.closeRefused(id, text, 'Internal'),
        );
      case 'leaveAmbiguous':
        return this.#both(model.leaveAmbiguous(before, owner), () =>
          this.#records.leaveAmbiguous(id, text, 'Unavailable').then(() => 'ok'),
        );
      case 'leaveAnswered':
        return this.#both(model.leaveAnswered(before, owner, 1), () =>
          this.#records.leaveAnswered(id, text, volumeAnswer('h')).then(() => 'ok'),
        );
      case 'revert':
        return this.#both(model.revert(before, owner), () =>
          this.#records.revert(id, text).then(() => 'ok'),
        );
      case 'closeGone':
        return this.#both(model.closeGone(before, owner), () =>
          this.#records.closeGone(id, text).then(() => 'ok'),
        );
      case 'leaveDeleting':
        return this.#both(model.leaveDeleting(before, owner), () =>
          this.#records.leaveDeleting(id, text, 'Internal').then(() => 'ok'),
        );
      case 'endDeletion': {
        const to = flag ? 'stored' : 'gone';
        return this.#both(model.endDeletion(before, opening, to), () =>
          this.#records.endDeletion(id, text, to),
        );
      }
      case 'rewriteLost':
        return this.#records.leftOpen === 0 ? ['', ''] : this.#rewriteLost();
      case 'time passes':
        await this.#timePasses();
        return ['', ''];
      case 'a day passes':
        if (before.expires) {
          this.record = NO_RECORD;
          await this.#redis.del(recordKey);
        }
        return ['', ''];
      case 'Redis is emptied':
        this.record = NO_RECORD;
        this.recovery = { isConfirmed: false, left: 0 };
        await this.#redis.flushall();
        return ['', ''];
      case 'the leader begins an incarnation':
        await this.#confirm();
        return ['', ''];
    }
  }

  async #both(expected: Reply, act: () => Promise<string>): Promise<readonly [string, string]> {
    this.record = expected.record;
    const didRemember = this.#records.leftOpen > 0;
    const answer = await act().catch(lostWord);
    const isKept = didRemember && answer === 'opened' && AS_BUILT.memoryIsKept;
    if (answer === 'replay' || (answer === 'opened' && !isKept)) this.#remembered = this.#epoch;
    return [expected.word, answer];
  }

  async #rewriteLost(): Promise<readonly [string, string]> {
    const isOfBefore = !this.recovery.isConfirmed || this.#remembered !== this.#epoch;
    const answers = await this.#both(
      model.rewriteLost(this.record, isOfBefore, this.recovery),
      async () => {
        const rewritten = await this.#records.rewriteLostRecords();
        if (rewritten.length > 0) return 'ok';
        return this.#records.leftOpen === 0 ? 'closed' : 'busy';
      },
    );
    // Whatever it remembers of a record that is there again: another worker goes on.
    if (answers[0] === 'ok') this.#records = this.#worker();
    return answers;
  }

  async #timePasses(): Promise<void> {
    this.record = model.age(this.record);
    this.recovery = { ...this.recovery, left: Math.max(0, this.recovery.left - 1) };
    for (const [key, field] of [
      [recordKey, 'until'],
      [recordKey, 'call'],
      [incarnation, 'quarantineUntil'],
    ] as const) {
      if (Number((await this.#redis.hget(key, field)) ?? 0) > 0)
        await this.#redis.hincrby(key, field, -TICK_MS);
    }
  }

  async #confirm(): Promise<void> {
    if (this.recovery.isConfirmed) return;
    this.recovery = { isConfirmed: true, left: OWN + SETTLE };
    this.#epoch += 1;
    await this.#redis.hset(
      incarnation,
      'epoch',
      `e${this.#epoch}`,
      'quarantineUntil',
      String((await this.#nowMs()) + OWN * TICK_MS),
    );
  }

  async #nowMs(): Promise<number> {
    const [seconds, micros] = await this.#redis.time();
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }

  /** What Redis holds, in the model's terms. */
  async real(): Promise<VolumeRecord & { readonly isListed: boolean }> {
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
    return {
      state: (fields['state'] ?? 'none') as StateName,
      owner,
      until: isOwned ? ticks(fields['until']) : 0,
      ambiguous,
      settleTicks: ambiguous || beforeAmbiguous ? ticks(fields['call']) : 0,
      wasSettled: this.record.wasSettled,
      before:
        isOwned && beforeState !== undefined && beforeState !== ''
          ? (beforeState as StateName)
          : 'none',
      beforeAmbiguous,
      answer: fields['ans'] === undefined ? 0 : 1,
      hasRequest: fields['req'] !== undefined,
      expires: ttl > 0,
      isListed: listed === 1,
    };
  }
}

function wordOf(opened: OpenedCreate | OpenedDelete): Word {
  return opened.kind === 'not-yet' ? 'recovery' : opened.kind;
}

function lostWord(error: unknown): string {
  if (error instanceof OwnershipLost) return 'lost';
  throw error;
}

const STEP_NAMES = [
  'openCreate',
  'openExisting',
  'openResolve',
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
  'the leader begins an incarnation',
] as const;
type StepName = (typeof STEP_NAMES)[number];
const RARE: ReadonlySet<StepName> = new Set(['a day passes', 'Redis is emptied']);
/** Scripts that only an owner of a creation, or of a deletion, runs. */
const ENDS: Readonly<Record<'creating' | 'deleting', readonly StepName[]>> = {
  creating: ['closeStored', 'closeRefused', 'leaveAmbiguous', 'leaveAnswered', 'revert'],
  deleting: ['closeGone', 'leaveDeleting', 'revert'],
};

describe('the model of the volume record', () => {
  let server: RedisServer;
  let redis: Redis;
  let dir: string;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-model-'));
    server = await startRedisServer({ dataDir: dir, log: silentLog });
    redis = new Redis(server.url);
  });
  after(async () => {
    redis.disconnect();
    await server.close();
    await rm(dir, { recursive: true, force: true });
  });

  it(`answers as the scripts do and leaves the same record, ${SEEDS} sequences of ${STEPS} steps`, async () => {
    const met = new Map<string, number>();
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const random = seeded(seed);
      const pick = <T>(list: readonly [T, ...T[]] | readonly T[]): T =>
        list[Math.floor(random() * list.length)] as T;
      const pair = new Pair(redis);
      await pair.start();
      const log: string[] = [];
      for (let at = 0; at < STEPS; at += 1) {
        // Scripts in an order that runs could have them, mostly; now and then any script by
        // anybody.
        const { owner: holder, state } = pair.record;
        let name = random() < 0.2 ? 'time passes' : pick(STEP_NAMES);
        let owner = pick([1, 2, 3]);
        if (RARE.has(name) && random() < 0.7) continue;
        if (holder !== 0 && random() < 0.3) {
          name = pick(state === 'deleting' ? ENDS.deleting : ENDS.creating);
          owner = holder;
        }
        // An owner that is no creation's never ends one: the jobs don't mix them up, and the
        // scripts need not guard against it.
        if (owner === holder && isOther(name, state)) continue;
        const flag = random() < 0.5;
        const [expected, real] = await pair.step(name, owner, flag);
        log.push(`${name} by w${owner}${flag ? ' (flag)' : ''}: ${real}`);
        const where = `seed ${seed}, step ${at}:\n  ${log.join('\n  ')}`;
        assert.equal(real, expected, where);
        assert.deepEqual(
          await pair.real(),
          { ...pair.record, isListed: model.isOpen(pair.record) },
          where,
        );
        met.set(`${name} ${real}`, (met.get(`${name} ${real}`) ?? 0) + 1);
      }
    }
    const words = [...met.keys()];
    for (const wanted of [
      'openCreate replay',
      'openResolve replay',
      'openDelete resolve',
      'openDelete settle',
      'openDelete creating',
      'openDelete recovery',
    ]) {
      assert.ok(words.includes(wanted), `${wanted} never came up`);
    }
    for (const wanted of [
      'closeRefused removed',
      'closeRefused suspect',
      'closeStored lost',
      'endDeletion ok',
      'rewriteLost ok',
    ]) {
      assert.ok(words.includes(wanted), `${wanted} never came up`);
    }
  });
});

function isOther(name: StepName, state: StateName): boolean {
  if (state === 'deleting') return ENDS.creating.includes(name) && name !== 'revert';
  return ENDS.deleting.includes(name) && name !== 'revert';
}
