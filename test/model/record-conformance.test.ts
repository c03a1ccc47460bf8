import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import type { JobKey } from '#src/queue/contract.ts';
import { incarnationKey, openRecordsKey, volumeRecordKey } from '#src/records/key-names.ts';
import { startRedisServer, type RedisServer } from '#src/redis/server.ts';
import { OwnershipLost, VolumeRecords } from '#src/records/volume-record.ts';
import type { OpenedCreate, OpenedDelete } from '#src/records/open-results.ts';
import { silentLog } from '#src/runtime/log.ts';
import { plannedRequest, volumeAnswer } from '../harness/planned-request.ts';
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
const SEEDS = 150;
const STEPS = 80;

const prefix = 'csi';
const driver = 'd.example';
const id = 'u1';
const job: JobKey = { kind: 'claim', uid: id, namespace: 'ns', name: 'c' };
const planned = plannedRequest();
const recordKey = volumeRecordKey(prefix, driver, id);
const openKey = openRecordsKey(prefix, driver);
const redisIncarnationKey = incarnationKey(prefix, driver);

/** The model's record and the real one, side by side. */
class Pair {
  record: VolumeRecord = NO_RECORD;
  recovery: Recovery = model.NO_LOSS;
  #incarnation = 1;
  readonly #redis: Redis;
  #records: VolumeRecords;
  /** Incarnation of the creation that the worker remembers. */
  #remembered = 0;

  constructor(redis: Redis) {
    this.#redis = redis;
    this.#records = this.#createWorker();
  }

  #createWorker(): VolumeRecords {
    return new VolumeRecords({
      redis: this.#redis,
      prefix,
      driver,
      ownMs: OWN * TICK_MS,
      settleMs: SETTLE * TICK_MS,
    });
  }

  /** Begins the first incarnation of an empty Redis. */
  async start(): Promise<void> {
    await this.#redis.flushall();
    await this.#redis.hset(redisIncarnationKey, 'epoch', 'e1', 'quarantineUntil', '0');
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
      openResolve: (owner) =>
        this.#openCreation(owner, 'resolve', () =>
          this.#records.openResolve(id, { owner: ownerName(owner), job }),
        ),
      openDelete: (owner) =>
        this.#runBoth(model.openDelete(this.record, this.#opening(owner)), () =>
          this.#records.openDelete(id, { owner: ownerName(owner), job }).then(replyKindOf),
        ),
      closeStored: (owner, flag) =>
        this.#runBoth(model.closeStored(this.record, owner, flag), () =>
          this.#records
            .closeStored(id, ownerName(owner), flag ? 'answered' : 'seen')
            .then(() => 'ok'),
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
        this.#runBoth(model.leaveAnswered(this.record, owner, 1), () =>
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
      'Redis is emptied': async () => {
        this.record = NO_RECORD;
        this.recovery = { isConfirmed: false, left: 0 };
        await this.#redis.flushall();
        return NO_ANSWERS;
      },
      'the leader begins an incarnation': async () => {
        await this.#beginIncarnation();
        return NO_ANSWERS;
      },
    };

  #opening(owner: number): Opening {
    return { owner, rules: AS_BUILT, recovery: this.recovery };
  }

  #openCreation(owner: number, mode: OpenMode, act: () => Promise<OpenedCreate>): Promise<Answers> {
    const expected = model.openCreate(this.record, mode, this.#opening(owner));
    return this.#runBoth(expected, () => act().then(replyKindOf));
  }

  async #runBoth(expected: Reply, act: () => Promise<string>): Promise<Answers> {
    this.record = expected.record;
    const didRemember = this.#records.leftOpen > 0;
    const answer = await act().catch(replyKindOfError);
    const isKept = didRemember && answer === 'opened' && AS_BUILT.memoryIsKept;
    if (answer === 'replay' || (answer === 'opened' && !isKept))
      this.#remembered = this.#incarnation;
    return [expected.kind, answer];
  }

  async #rewriteLost(): Promise<Answers> {
    const isLost = !this.recovery.isConfirmed || this.#remembered !== this.#incarnation;
    const answers = await this.#runBoth(
      model.rewriteLost(this.record, isLost, this.recovery),
      async () => {
        const rewritten = await this.#records.rewriteLostRecords();
        if (rewritten.length > 0) return 'ok';
        return this.#records.leftOpen === 0 ? 'closed' : 'busy';
      },
    );
    // A new worker goes on, so that what this one remembers of the rewritten record has no effect.
    if (answers[0] === 'ok') this.#records = this.#createWorker();
    return answers;
  }

  async #passTime(): Promise<void> {
    this.record = model.age(this.record);
    this.recovery = { ...this.recovery, left: Math.max(0, this.recovery.left - 1) };
    for (const [key, field] of [
      [recordKey, 'until'],
      [recordKey, 'call'],
      [redisIncarnationKey, 'quarantineUntil'],
    ] as const) {
      if (Number((await this.#redis.hget(key, field)) ?? 0) > 0)
        await this.#redis.hincrby(key, field, -TICK_MS);
    }
  }

  async #beginIncarnation(): Promise<void> {
    if (this.recovery.isConfirmed) return;
    this.recovery = { isConfirmed: true, left: OWN + SETTLE };
    this.#incarnation += 1;
    await this.#redis.hset(
      redisIncarnationKey,
      'epoch',
      `e${this.#incarnation}`,
      'quarantineUntil',
      String((await this.#nowMs()) + OWN * TICK_MS),
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

type Answers = readonly [string, string];

/** Of a step that is no script. */
const NO_ANSWERS: Answers = ['', ''];

function ownerName(owner: number): string {
  return `w${owner}`;
}

function replyKindOf(opened: OpenedCreate | OpenedDelete): ReplyKind {
  return opened.kind === 'not-yet' ? 'recovery' : opened.kind;
}

function replyKindOfError(error: unknown): string {
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
/** The scripts that end an attempt, of a creation and of a deletion. */
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

  it(`equals the scripts, in ${SEEDS} sequences of ${STEPS} steps`, async () => {
    const met = new Set<string>();
    for (let seed = 1; seed <= SEEDS; seed += 1) await runSequence(redis, seed, met);
    for (const wanted of [
      'openCreate replay',
      'openResolve replay',
      'openDelete resolve',
      'openDelete settle',
      'openDelete creating',
      'openDelete recovery',
      'closeRefused removed',
      'closeRefused suspect',
      'closeStored lost',
      'endDeletion ok',
      'rewriteLost ok',
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
