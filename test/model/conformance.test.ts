/* The code does in a real Redis what the model of the protocol says: after each step both hold the
 * same job, in the same phase, of the same history, with the same `until` and lock, and the same
 * leader's term. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { finished } from '#src/jobs/mark-job.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { seeded } from '../harness/seeded.ts';
import { formerViewOf, mayWriteTerm, viewOf } from './leader.ts';
import { listSteps } from './protocol.ts';
import { D_MS, RealRedis } from './real-redis.ts';
import {
  addRule,
  ALL_RULES,
  dropRule,
  type Job,
  type LeaderView,
  markRule,
  seenPvRule,
  takeFinishedRule,
  TICKS,
  unmarkRule,
  type Until,
  untilOfNewJob,
} from './rules.ts';
import { type Faults, initialState, type State, type WorkerId } from './state.ts';
import type { Model, Step } from './steps.ts';

const MODEL: Model = { rules: ALL_RULES, isHandleFromName: false, isDriverSerial: false };

/** How runs end, as the jobs do it (src/jobs/). */
const BACK: Outcome = { kind: 'later', reason: 'test', delayMs: 60_000 };
const RETRY: Outcome = { kind: 'retry', reason: 'test' };
const DONE: Outcome = { kind: 'done', note: 'test' };

/** A step of the model, of which Redis' side is done in the real one. */
interface Taken {
  readonly real: RealRedis;
  readonly from: State;
  readonly to: State;
  /** Whose step it is, where a worker's name is in it. */
  readonly id: WorkerId;
}
type Act = (step: Taken) => unknown;

const nothing: Act = () => undefined;
const endWith =
  (outcome: Outcome): Act =>
  ({ real, id }) =>
    real.end(id, outcome);

const giveBack = endWith(BACK);
const retry = endWith(RETRY);
const finish = endWith(DONE);

/** What Redis gets of each step: of others nothing. A worker's name is W here. */
const ACTS: Readonly<Record<string, Act>> = {
  'a tick': ({ real }) => real.tick(),
  'the deletion of W is cut, and stays at work': retry,
  'Redis is emptied': ({ real }) => real.empty(),
  'Redis goes back to the copy': ({ real }) => real.setBack(),
  'Redis fails over with all its data': ({ real }) => real.failOver(),
  'leader, workers and Redis die together': ({ real }) => real.die(),
  'the stalled job waits again': stall,
  'W takes the job': take,
  'W takes the job with a copy of the claim (R1)': take,
  'W takes the deletion': take,
  'W gives the job back until the doubt is over': giveBack,
  'W marks the creation': mark,
  'W sends nothing: too late, or not forwarded': async (step) => {
    await step.real.unmark(step.id);
    await step.real.end(step.id, BACK);
  },
  'W is too late to write the PV': giveBack,
  'W takes the refusal': takeRefusal,
  'W takes the refusal in doubt': takeRefusal,
  'W takes the unknown end': retry,
  'W finishes the job': finish,
  'W reads the PV: nothing to delete': finish,
  'W marks the deletion': mark,
  'W is too late to delete': giveBack,
  'W removes the PV': finish,
  'W is too late to remove the PV': giveBack,
  'W crashes': ({ real, id }) => real.crash(id),
  'W loses the lock of its job': stall,
  'a new leader': ({ real }) => real.beginLeader(),
  'the leader dies': ({ real }) => real.endLeader(),
  'the leader writes its term to Redis': ({ real }) => real.writeTerm(false),
  'the leader lists the journal': dropUnlessLater,
  'the leader notices the new history': async (step) => {
    await step.real.writeTerm(true);
    await dropUnlessLater(step);
  },
  'the leader drops the jobs of another history': ({ real, from }) =>
    drop(real, 'leader', viewOf(from)),
  'the leader adds the job': (step) => add(step, { kind: 'creation', until: undefined }),
  'the leader adds the job of a listed entry': (step) =>
    add(step, { kind: 'creation', until: untilOfNewJob(false) }),
  'the leader adds the deletion': (step) => add(step, { kind: 'deletion', until: undefined }),
  'the leader removes the finished job': remove,
  'the leader removes a finished job that frees no entry': remove,
  'the former leader goes on: begin': async ({ real, from }) => {
    const isWritten = await real.writeFormerTerm();
    assert.equal(isWritten, mayWriteTerm(from.redis), 'whether the former leader writes its term');
  },
  'the former leader goes on: await the journal write': addAsFormer,
  'the former leader goes on: add the job': addAsFormer,
  'the former leader goes on: add the job again': addAsFormer,
  'the former leader goes on: drop the jobs of before': ({ real, from }) =>
    drop(real, 'former leader', formerViewOf(from)),
};
const REPLACED = 'the leader is replaced, and stands still (next: ';
const COPIED = '(Redis is copied) ';

function stall({ real, from }: Taken): Promise<void> {
  return real.stall(from.redis.job?.kind ?? 'creation');
}

async function take({ real, from, to, id }: Taken): Promise<void> {
  const kind = from.redis.job?.kind ?? 'creation';
  const taken = await real.take(id, kind);
  if (kind === 'deletion') return;
  const { isFirstRun, until } = to.workers[id];
  assert.deepEqual(taken, { isFirstRun, until }, 'what the run knows of earlier calls');
}

async function mark({ real, from, to, id }: Taken): Promise<void> {
  const marked = await real.mark(id);
  const { step, until } = to.workers[id];
  assert.equal(marked === undefined, step === 'idle', 'whether the run may call the driver');
  // The run of a deletion asks nothing of it.
  if (marked && from.workers[id].step === 'mark the creation')
    assert.equal(marked.before, until, 'what the mark says of earlier calls');
}

async function takeRefusal({ real, to, id }: Taken): Promise<void> {
  if (to.workers[id].step !== 'idle') return;
  await real.unmark(id);
  await real.end(id, RETRY);
}

type Who = 'leader' | 'former leader';

function isOutdated(view: LeaderView): boolean {
  return addRule(undefined, view, { kind: 'creation', until: undefined }).kind === 'outdated';
}

async function drop(real: RealRedis, who: Who, view: LeaderView): Promise<void> {
  assert.equal(await real.drop(who), !isOutdated(view), 'whether the leader may drop jobs');
}

/** Where nothing is to be dropped, that is no step of the model. */
async function dropUnlessLater({ real, to }: Taken): Promise<void> {
  if (to.leader.step === 'idle') await drop(real, 'leader', viewOf(to));
}

type Wanted = Pick<Job, 'kind' | 'until'>;

function add({ real, from }: Taken, wanted: Wanted): Promise<void> {
  return addAs('leader', real, wanted, addRule(from.redis.job, viewOf(from), wanted));
}

function addAsFormer({ real, from }: Taken): Promise<void> {
  const { step, mustAddAgain } = from.formerLeader;
  const isFirst = step !== 'add the job again' || !mustAddAgain;
  const wanted: Wanted = { kind: 'creation', until: untilOfNewJob(isFirst) };
  const answer = addRule(from.redis.job, formerViewOf(from), wanted);
  return addAs('former leader', real, wanted, answer);
}

async function addAs(
  who: Who,
  real: RealRedis,
  wanted: Wanted,
  answer: ReturnType<typeof addRule>,
): Promise<void> {
  const found = await real.add(who, wanted);
  const text = String(found).replace('delayed', 'waiting');
  assert.equal(text, answerText(answer, wanted), 'what adding a job says');
}

/** As the real queue says it. */
function answerText(answer: ReturnType<typeof addRule>, wanted: Wanted): string {
  if (answer.kind === 'outdated') return 'undefined';
  if (answer.kind === 'added') return 'added';
  return answer.job.kind === wanted.kind ? answer.job.phase : 'elsewhere';
}

async function remove({ real, from }: Taken): Promise<void> {
  const { job } = from.redis;
  await real.remove(job?.kind ?? 'creation');
}

/** A real Redis and the model, in the same state. */
class Twins {
  readonly #real: RealRedis;
  readonly #steps: string[] = [];
  state: State;

  private constructor(real: RealRedis, state: State) {
    this.#real = real;
    this.state = state;
  }

  static async begin(real: RealRedis, state: State): Promise<Twins> {
    await real.reset();
    return new Twins(real, state);
  }

  /** Takes a step in both, and compares them.
   * @returns whether the step has a part in Redis */
  async take(step: Step): Promise<boolean> {
    const from = this.state;
    this.#steps.push(step.what);
    this.state = step.state;
    try {
      return await this.#act(step.what, from, step.state);
    } catch (error) {
      const steps = this.#steps.map((each) => `\n  ${each}`).join('');
      const text = error instanceof Error ? error.message : String(error);
      throw new Error(`${text}\nafter these steps:${steps}`, { cause: error });
    }
  }

  async #act(what: string, from: State, to: State): Promise<boolean> {
    const real = this.#real;
    if (what.startsWith(COPIED)) await real.copy();
    const { act, id } = actOf(what);
    await act({ real, from, to, id });
    if (!to.redisCopy) real.dropCopy();
    if (act === nothing) {
      assert.deepEqual(from.redis, to.redis, 'the model changes Redis, and the code does nothing');
      return false;
    }
    await Promise.all([
      real
        .data()
        .then((data) =>
          assert.deepEqual(data, { ...to.redis, term: to.redis.term.replace('later', 'other') }),
        ),
      this.#compareFinished('leader', viewOf(to), to),
      this.#compareFinished('former leader', formerViewOf(to), to),
    ]);
    return true;
  }

  /** J2: what each leader that has begun would find finished now. */
  async #compareFinished(who: Who, view: LeaderView, { redis: { job }, ...state }: State) {
    const { step } = who === 'leader' ? state.leader : state.formerLeader;
    if (NOT_BEGUN.includes(step)) return;
    const found = await this.#real.finished(who);
    assert.equal(found === undefined, isOutdated(view), `whether the ${who} is outdated`);
    const isTaken = takeFinishedRule(job, view) === 'taken';
    const taken = isTaken && job ? [job.kind] : [];
    assert.deepEqual(found ?? [], taken, `which jobs the ${who} finds finished`);
  }
}

const NOT_BEGUN: readonly string[] = [
  'dead',
  'none',
  'begin',
  'list the journal',
  'drop the jobs of before',
];

function actOf(what: string): { readonly act: Act; readonly id: WorkerId } {
  const text = what.replace(COPIED, '');
  const id = text.includes('worker 2') ? 1 : 0;
  if (text.startsWith(REPLACED)) return { act: ({ real }) => real.replaceLeader(), id };
  return { act: ACTS[text.replace(/worker [12]/, 'W')] ?? nothing, id };
}

/** Walks through the model at random, and prefers what no walk has done in Redis yet. */
class Walker {
  readonly #real: RealRedis;
  readonly #random: () => number;
  /** What no walk has done in Redis. */
  readonly undone = new Set(Object.values(ACTS));
  compared = 0;

  constructor(real: RealRedis, seed: number) {
    this.#real = real;
    this.#random = seeded(seed);
  }

  /** @param most  steps that have a part in Redis */
  async walk(faults: Partial<Faults>, most: number): Promise<void> {
    const twins = await Twins.begin(this.#real, initialState(faults));
    for (let left = most; left > 0;) {
      const step = this.#choose(twins);
      if (step === undefined) return;
      this.undone.delete(actOf(step.what).act);
      if (!(await twins.take(step))) continue;
      left -= 1;
      this.compared += 1;
    }
  }

  #choose({ state }: Twins): Step | undefined {
    // Without the claim nothing happens then.
    const isClaimNeeded = !state.isInJournal && state.pv.phase === 'none';
    let least = Infinity;
    let chosen: Step | undefined;
    for (const step of listSteps(MODEL, state)) {
      if (isClaimNeeded && step.what.includes('the user deletes the claim')) continue;
      const isNew = this.undone.has(actOf(step.what).act);
      const rank = this.#random() * (step.isProgress ? 1 : 2) - (isNew ? 1 : 0);
      if (rank >= least) continue;
      least = rank;
      chosen = step;
    }
    return chosen;
  }
}

interface Situation {
  readonly until: Until;
  readonly holder: 'none' | 'worker 1' | 'worker 2';
  readonly isOfHistory: boolean;
}
const VIEWS: readonly LeaderView[] = [true, false].flatMap((hasTerm) =>
  [true, false].map((knowsHistory) => ({ hasTerm, knowsHistory })),
);
const UNTILS: readonly Until[] = [undefined, 0, 1, TICKS.doubt, TICKS.doubt + 1];

/** Steps with a part in Redis. */
const LONGEST_WALK = 60;
const COMPARISONS = 1_500;

let real: RealRedis;
before(async () => {
  real = await RealRedis.open();
});
after(() => real.close());

/** A run of worker 1 has taken a creation with this `until`, which is as these say by now. */
async function begin({ until, holder, isOfHistory }: Situation): Promise<Job> {
  await real.reset();
  await real.drop('leader');
  await real.add('leader', { kind: 'creation', until: undefined });
  await real.take(0, 'creation');
  if (holder !== 'worker 1') await real.stall('creation');
  if (holder === 'worker 2') await real.take(1, 'creation');
  await real.setUntil('creation', until);
  if (!isOfHistory) await real.failOver();
  const { job } = await real.data();
  assert.deepEqual(job, {
    kind: 'creation',
    phase: holder === 'none' ? 'waiting' : 'active',
    isOfHistory,
    until,
    isNew: false,
    lock: holder,
  });
  return job;
}
async function compareMark(situation: Situation): Promise<void> {
  const job = await begin(situation);
  const { isOfHistory, holder } = situation;
  const answer = markRule(job, { isOfHistory, hasLock: holder === 'worker 1' });
  const what = JSON.stringify(situation);
  const marked = await real.mark(0);
  const { job: found } = await real.data();
  if (answer.kind !== 'marked') {
    assert.equal(marked, undefined, what);
    assert.equal(found?.until, job.until, what);
    return;
  }
  assert.deepEqual(marked, { before: answer.before }, what);
  assert.equal(found?.until, answer.until, what);
}

const JOBS: Readonly<Record<string, (kind: Job['kind']) => Promise<unknown>>> = {
  none: () => Promise.resolve(),
  waiting: (kind) => real.add('leader', { kind, until: undefined }),
  active: async (kind) => {
    await real.add('leader', { kind, until: undefined });
    await real.take(0, kind);
  },
  finished: async (kind) => {
    await real.add('leader', { kind, until: undefined });
    await real.take(0, kind);
    await real.end(0, DONE);
  },
};
const SITUATIONS = (['creation', 'deletion'] as const).flatMap((kind) =>
  Object.keys(JOBS).flatMap((phase) =>
    [true, false].flatMap((isOfHistory) =>
      VIEWS.map((view) => ({ kind, phase, isOfHistory, view })),
    ),
  ),
);
/** Does `compare` for each job that there may be and each view of a leader: of the former one. */
async function forEachSituation(
  compare: (
    situation: (typeof SITUATIONS)[number] & { readonly found: Job | undefined },
    what: string,
  ) => Promise<void>,
): Promise<void> {
  for (const situation of SITUATIONS) {
    const { kind, phase, isOfHistory, view } = situation;
    await real.reset();
    await real.drop('leader');
    await JOBS[phase]?.(kind);
    if (!isOfHistory) await real.failOver();
    if (!isOfHistory) await real.writeTerm(true);
    real.setFormer(view);
    const { job: found } = await real.data();
    await compare({ ...situation, found }, JSON.stringify(situation));
  }
}

describe('in each situation of a job', () => {
  it('a mark does what the model says (M1)', async () => {
    for (const until of UNTILS)
      for (const holder of ['none', 'worker 1', 'worker 2'] as const)
        for (const isOfHistory of [true, false]) await compareMark({ until, holder, isOfHistory });
  });

  it('taking a mark back does what the model says (M3)', async () => {
    for (const before of UNTILS)
      for (const isLost of [true, false]) {
        await begin({ until: before, holder: 'worker 1', isOfHistory: true });
        await real.mark(0);
        if (isLost) await real.stall('creation');
        const { job } = await real.data();
        assert.ok(job);
        await real.unmark(0);
        const { job: found } = await real.data();
        assert.equal(found?.until, unmarkRule(job, !isLost, before), `${before}, ${isLost}`);
      }
  });

  it('adding a job does what the model says (J4, J5)', () =>
    forEachSituation(async ({ found, view, isOfHistory }, what) => {
      // The model does not know of what history the jobs are where there is none.
      if (!found && !isOfHistory) return;
      let job = found;
      for (const kind of ['creation', 'deletion'] as const) {
        const wanted: Wanted = { kind, until: TICKS.doubt };
        const answer = addRule(job, view, wanted);
        await addAs('former leader', real, wanted, answer);
        job = answer.kind === 'outdated' ? job : answer.job;
        assert.deepEqual((await real.data()).job, job, what);
      }
    }));

  it('finished jobs are found and removed as the model says (J2)', () =>
    forEachSituation(async ({ found: job, view }, what) => {
      const isTaken = takeFinishedRule(job, view) === 'taken';
      const ended = await real.finished('former leader');
      assert.deepEqual(ended ?? [], isTaken && job ? [job.kind] : [], what);
      if (job) await real.remove(job.kind, 'former leader');
      assert.deepEqual((await real.data()).job, isTaken ? undefined : job, what);
    }));

  it('the jobs of another history are dropped as the model says (J4)', () =>
    forEachSituation(async ({ found, view }, what) => {
      await drop(real, 'former leader', view);
      assert.deepEqual((await real.data()).job, dropRule(found, view), what);
    }));

  it('a run that sees the PV of its claim ends its job unless that is in doubt (R2)', () => {
    for (const until of UNTILS) {
      const leftMs = until === undefined ? undefined : until * D_MS;
      const isOver = finished('test', leftMs).kind === 'done';
      assert.equal(isOver, seenPvRule(until) === 'finish', `${until}`);
    }
  });
});

describe('the code does in Redis what the model says', () => {
  it('when all faults come in any order', async () => {
    const faults = {
      crashes: 3,
      lostLocks: 3,
      lostAnswers: 2,
      emptyings: 1,
      setBacks: 3,
      replacedLeaders: 4,
      dropInDeaths: 1,
    };
    const walker = new Walker(real, 2);
    for (let walk = 0; walker.compared < COMPARISONS; walk++)
      await walker.walk(faults, LONGEST_WALK).catch((cause: unknown) => {
        const text = cause instanceof Error ? cause.message : String(cause);
        throw new Error(`walk ${walk}: ${text}`, { cause });
      });
    const undone = Object.keys(ACTS).filter((name) => walker.undone.has(ACTS[name] ?? nothing));
    assert.deepEqual(undone, []);
  });
});
