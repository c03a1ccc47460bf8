import { performance } from 'node:perf_hooks';
import { keyId, type JobKey } from '../queue/contract.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import { askRedis, RecordsUnavailable } from './ask-redis.ts';
import { forgetCommand, UNUSABLE_RECORD } from './forget.ts';
import { encodeJob, openJobs } from './open-records.ts';
import {
  explainNotOpened,
  isNotOpened,
  type NotYet,
  type OpenedCreate,
  type OpenedDelete,
} from './open-results.ts';
import { RecordEnds } from './record-ends.ts';
import {
  BEGIN_OPENING,
  NOT_OPENED,
  type NotOpened,
  OPENED,
  OPENING_ARGS,
  OPENING_KEYS,
  REQUEST,
  requireSameGateway,
  TRACES,
} from './record-scripts.ts';
import { RECORD_NOW } from './record-clock.ts';
import type { VolumeRequest } from './stored-request.ts';

/* How an attempt begins: the scripts that open a record, and the methods that call them.
 * record-scripts.ts explains keys, fields and common arguments. */

/** No record, `creating`, `suspect` or `stored` to `creating`, with a new owner.
 *
 * mode      plan      opens a new record with the given request, or takes up the open one
 *           existing  only takes up the open one
 *           again     as plan; also takes up `stored`, because the PV was removed
 * Answers   opened    with the given request
 *           replay    with the stored request, which has to be sent again. `settlesInMs`: time
 *                     until no call of unknown end is at work any more, 0 where none is.
 *                     `isOfEarlierTerm`: another provisioner may have led since it was opened.
 *                     `sinceMs`: when the first call was to be sent, by Redis' clock
 *           closed    there is nothing to do for this mode. `waitMs`: until a record that is `gone`
 *                     is forgotten, else 0
 *           none      no record, and the mode opens none
 *           or NOT_OPENED */
const openCreateScript = defineNamedScript({
  keys: OPENING_KEYS,
  args: { ...OPENING_ARGS, mode: ['plan', 'existing', 'again'], ...REQUEST },
  answers: {
    ...NOT_OPENED,
    none: {},
    closed: { state: ['stored', 'deleting', 'gone'], waitMs: 'number' },
    opened: { ...OPENED, endpoint: 'text' },
    replay: {
      ...OPENED,
      ambiguous: 'flag',
      settlesInMs: 'number',
      isOfEarlierTerm: 'flag',
      sinceMs: 'number',
      lastCode: 'text',
      ...REQUEST,
      answer: 'text',
    },
  },
  lua: `${BEGIN_OPENING}
local goneMs = 0
if state == 'gone' then
  goneMs = untilMs - now
  if goneMs <= 0 then
    redis.call('DEL', recordKey)
    state = nil
  end
end
local function answerReplay(settlesInMs)
  local req, skel, secretRef, ep, ans, code, openedIn, seal, since = unpack(redis.call(
    'HMGET', recordKey, 'req', 'skel', 'secret', 'ep', 'ans', 'code', 'term', 'seal', 'since'))
  local isOfEarlierTerm = (otherProvisioner or (openedIn or '') ~= (term or '')) and '1' or '0'
  return {'replay', 'dataEpoch', dataEpoch, 'count', countOpening(), 'ambiguous', amb,
    'settlesInMs', settlesInMs, 'isOfEarlierTerm', isOfEarlierTerm, 'sinceMs', since or redisNow,
    'request', req or '', 'pvTemplate', skel or '',
    'secret', secretRef or '', 'endpoint', ep or '', 'seal', seal or '', 'answer', ans or '',
    'lastCode', code or ''}
end
if not state then
  if mode == 'existing' then return {'none'} end
  if halt then return halt end
  local call = now < lossSettledAt and quarantineUntil or 0
  if trace == 'finalizer' then call = untilNew end
  redis.call('HSET', recordKey, 'v', '1', 'state', 'creating', 'owner', owner, 'until', untilNew,
    'amb', call > 0 and '1' or '0', 'n', '1', 'since', redisNow, 'st', '0',
    'call', call, 'prev', '', 'key', job,
    'term', term or '', 'req', request, 'skel', pvTemplate, 'secret', secret, 'seal', seal,
    'ep', activeEndpoint ~= '' and activeEndpoint or endpoint)
  redis.call('HSET', openKey, id, job)
  if trace == 'none' and forgetBegunInMs > 0 then
    redis.call('HSET', begunKey, id, '1')
    redis.call('PEXPIRE', begunKey, forgetBegunInMs)
  end
  return answerOpened()
end
-- After a loss, calls that the lost data knew of may be at work until its quarantine ends.
local call = math.max(tonumber(redis.call('HGET', recordKey, 'call') or 0), quarantineUntil)
local settlesInMs = amb == '1' and math.max(0, call + settleMs - now) or 0
if isRepeated and state == 'creating' then
  if redis.call('HGET', recordKey, 'prev') == '' then return answerOpened() end
  return answerReplay(settlesInMs)
end
if state == 'deleting' or state == 'gone' or (state == 'stored' and mode ~= 'again') then
  return {'closed', 'state', state, 'waitMs', goneMs}
end
if state == 'stored' and halt then return halt end
${requireSameGateway("amb == '1'")}
if state == 'stored' then
  redis.call('HSET', recordKey, 'req', request, 'skel', pvTemplate, 'secret', secret, 'seal', seal,
    'ep', endpoint, 'key', job, 'since', redisNow, 'term', term or '')
  redis.call('PERSIST', recordKey)
end
redis.call('HSET', recordKey, 'state', 'creating', 'owner', owner, 'until', untilNew,
  'st', amb == '1' and settlesInMs == 0 and '1' or '0', 'n', n + 1, 'prev', previous,
  'call', call)
if activeEndpoint ~= '' then redis.call('HSET', recordKey, 'ep', activeEndpoint) end
redis.call('HSETNX', openKey, id, redis.call('HGET', recordKey, 'key') or job)
return answerReplay(settlesInMs)
`,
});

/** No record, `stored` or `deleting` to `deleting`, with a new owner.
 *
 * endpoint  the gateway to call where no leader has named one, '' for none
 * Answers   opened
 *           creating  a creation is open, and has to end first (record rule 1)
 *           settle    an earlier creation of unknown end may be at work in the driver (record rule
 *                     5), or one that lost data knew of
 *           gone      the volume is deleted
 *           or NOT_OPENED */
const openDeleteScript = defineNamedScript({
  keys: OPENING_KEYS,
  args: { ...OPENING_ARGS, handle: 'text', endpoint: 'text' },
  answers: {
    ...NOT_OPENED,
    opened: { ...OPENED, endpoint: 'text' },
    creating: {},
    settle: { waitMs: 'number' },
    gone: {},
  },
  lua: `${BEGIN_OPENING}
if isRepeated and state == 'deleting' then return answerOpened() end
if state == 'creating' or state == 'suspect' then return {'creating'} end
-- After a loss of data there may be a second volume of this claim: if nothing is sent for it, the
-- record must not say that it is gone.
if state == 'gone' then
  if redis.call('HGET', recordKey, 'handle') == handle then return {'gone'} end
  previous = ''
end
if halt and state ~= 'deleting' then return halt end
if state ~= 'deleting' then
  local call = state == 'stored' and redis.call('HGET', recordKey, 'call') or 0
  local settlesInMs = math.max(lossSettledAt, call + settleMs) - now
  if settlesInMs > 0 then return {'settle', 'waitMs', settlesInMs} end
end
local target = activeEndpoint ~= '' and activeEndpoint or endpoint
${requireSameGateway("state == 'deleting'", 'target')}
redis.call('PERSIST', recordKey)
if target ~= '' then redis.call('HSET', recordKey, 'ep', target) end
redis.call('HSET', recordKey, 'v', '1', 'state', 'deleting', 'owner', owner, 'until', untilNew,
  'amb', '0', 'n', n + 1, 'key', job, 'prev', previous, 'handle', handle)
redis.call('HSETNX', recordKey, 'since', redisNow)
redis.call('HSET', openKey, id, job)
return answerOpened()
`,
});

/** How long the finalizer of a claim is needed, with soft state.
 *
 * Answers   keep      its record is open, or no leader has confirmed Redis' data
 *           settles   `waitMs`: until no call of unknown end is at work any more, else 0.
 *                     `isUnseen`: the creation is that of an earlier process */
const finalizerScript = defineNamedScript({
  keys: OPENING_KEYS,
  args: { id: 'text', settleMs: 'number', trace: TRACES },
  answers: { keep: {}, settles: { waitMs: 'number', isUnseen: 'flag' } },
  lua: `${RECORD_NOW}
local dataEpoch, quarantineUntil = unpack(redis.call(
  'HMGET', dataEpochKey, 'epoch', 'quarantineUntil'))
if not dataEpoch or redis.call('HEXISTS', openKey, id) == 1 then return {'keep'} end
local state, call = unpack(redis.call('HMGET', recordKey, 'state', 'call'))
call = tonumber(call or 0)
local isUnseen = not state and trace == 'claim' and redis.call('HEXISTS', begunKey, id) == 0
if isUnseen then call = tonumber(quarantineUntil or 0) end
return {'settles', 'waitMs', call > 0 and math.max(0, call + settleMs - now) or 0,
  'isUnseen', isUnseen and '1' or '0'}
`,
});

interface Opening {
  /** Unique to the run. */
  readonly owner: string;
  readonly job: JobKey;
  /** The claim had our finalizer when the run read it: an earlier run may have called the driver.
   * Matters with soft state. */
  readonly wasBegun?: boolean;
  /** VolumeRecords.seenDataEpoch from before the run read its object; absent where it read none. */
  readonly dataEpoch?: string;
  /** Why a stored request that no seal proves is not one for this object; undefined if it fits. */
  readonly whyUnfit?: (stored: VolumeRequest) => string | undefined;
}

const NONE_SEEN = 'none seen yet';

/** The volume records of one driver: the only way to a CreateVolume or DeleteVolume. Methods throw
 * OwnershipLost, or RecordsUnavailable while Redis can't be reached: then nothing may be sent. */
export class VolumeRecords extends RecordEnds {
  #dataEpoch = NONE_SEEN;
  /** The last answer that no record of the driver may be opened, and when it ends. */
  #notYet: { readonly answer: NotYet; readonly endMs: number } | undefined;
  /** The last answer that nothing new may be opened. */
  #halt: { readonly answer: NotYet; readonly endMs: number } | undefined;

  /** The epoch of Redis' data, and the term of the leader, as this process last saw them; asks
   * Redis only where it has seen none. A run notes it before it reads its object, and passes it
   * when it opens a record: what was read before a loss of data, or before another provisioner
   * led, proves nothing after it. */
  async seenDataEpoch(): Promise<string> {
    if (this.#dataEpoch === NONE_SEEN) {
      const { dataEpochKey: key } = this.driverKeys;
      const [id, term] = await askRedis(this.options.redis.hmget(key, 'epoch', 'term'));
      if (id) this.#dataEpoch = term ? `${id}.${term}` : id;
    }
    return this.#dataEpoch;
  }

  /** Why the run of a record would not open it, if an earlier run was told so: then this run need
   * not read its object to be told the same. */
  async whyNotYet(id: string): Promise<NotYet | undefined> {
    const waitMs = (this.#notYet?.endMs ?? 0) - performance.now();
    if (this.#notYet !== undefined && waitMs > 0) return { ...this.#notYet.answer, waitMs };
    return this.haltUnlessOpen([id]);
  }

  /** Why a run that may have one of these records should end without reading its object: nothing
   * new may be opened, and none of them is open. Sends a command only if this process knows of a
   * halt. */
  async haltUnlessOpen(ids: readonly string[]): Promise<NotYet | undefined> {
    const halt = this.#knownHalt();
    if (halt === undefined) return undefined;
    const jobs = await askRedis(this.options.redis.hmget(this.driverKeys.openKey, ...ids));
    return jobs.every((job) => job === null) ? halt : undefined;
  }

  #knownHalt(): NotYet | undefined {
    const holder = this.options.otherHolder?.();
    const halt =
      holder === undefined ? undefined : explainNotOpened({ kind: 'other-leads', holder });
    if (halt?.kind === 'not-yet') return halt;
    return this.#halt !== undefined && performance.now() < this.#halt.endMs
      ? this.#halt.answer
      : undefined;
  }

  /** Opens a creation with a planned request, or takes up the one that is stored.
   * @param attempt  mode `again`: also opens a `stored` record, because its PV was removed */
  openCreate(
    id: string,
    attempt: Opening & { readonly planned: VolumeRequest; readonly mode: 'plan' | 'again' },
  ): Promise<OpenedCreate> {
    return this.#openCreate(id, attempt.mode, attempt);
  }

  /** Takes up a creation that is open, even if its claim is gone (invariant 3). */
  openExisting(id: string, attempt: Opening): Promise<OpenedCreate> {
    return this.#openCreate(id, 'existing', attempt);
  }

  async #openCreate(
    id: string,
    mode: 'plan' | 'again' | 'existing',
    attempt: Opening & { readonly planned?: VolumeRequest },
  ): Promise<OpenedCreate> {
    const { job, owner, planned, whyUnfit } = attempt;
    const texts = this.requests.encode(id, planned);
    const args = { ...this.#openingArgs(id, attempt), mode, ...texts };
    const answer = await this.#open(id, owner, () => this.run(openCreateScript, id, args));
    if (isNotOpened(answer)) return this.#notOpened(answer);
    if (answer.kind === 'none' || answer.kind === 'closed') return answer;
    this.leftOpenCreations.counted(answer);
    const { dataEpoch, count, endpoint } = answer;
    if (answer.kind === 'opened') {
      const sent = { ...texts, ...endpointField(endpoint) };
      this.leftOpenCreations.addOpened(id, { job, texts: sent, dataEpoch, count });
      return { kind: 'opened', ...endpointField(endpoint) };
    }
    const { request, pvTemplate, secret, seal, ambiguous, settlesInMs } = answer;
    const { isOfEarlierTerm, sinceMs, lastCode } = answer;
    const found = { request, pvTemplate, secret, endpoint, seal };
    const decoded = this.requests.decode(id, found, answer.answer, whyUnfit);
    if (typeof decoded === 'string') {
      await this.revert(id, owner, UNUSABLE_RECORD);
      const reason =
        `the volume record ${id} is not used: ${decoded}; find out who changed what, delete a ` +
        `volume of it that nobody uses, ${forgetCommand(id, this.options.driver)}`;
      return { kind: 'unusable', reason };
    }
    this.leftOpenCreations.addTakenUp(id, { job, texts: found, dataEpoch, count });
    const history = { ambiguous, settlesInMs, isOfEarlierTerm, sinceMs, lastCode };
    return { kind: 'replay', ...decoded, ...history };
  }

  /** Opens the deletion of the volume that has this handle.
   * @param attempt.endpoint  the gateway to call where no leader has named one; '' for none */
  async openDelete(
    id: string,
    attempt: Opening & { readonly handle: string; readonly endpoint?: string },
  ): Promise<OpenedDelete> {
    const { owner, handle, endpoint = '' } = attempt;
    const args = { ...this.#openingArgs(id, attempt), handle, endpoint };
    const answer = await this.#open(id, owner, () => this.run(openDeleteScript, id, args));
    if (isNotOpened(answer)) return this.#notOpened(answer);
    if (answer.kind !== 'opened') return answer;
    this.leftOpenCreations.counted(answer);
    this.leftOpenCreations.forget(id);
    return { kind: 'opened', ...endpointField(answer.endpoint) };
  }

  /** Whether a claim has to keep our finalizer.
   * @param wasBegun  as in Opening
   * @returns `waitMs`: Infinity while its record is open, or may have been lost; with soft state
   *   also for as long as an earlier call may still be at work, since nothing else tells the next
   *   process of that; else 0. `isUnseen`: an earlier process may have begun a creation of which
   *   this one knows nothing */
  async finalizerNeed(
    id: string,
    wasBegun: boolean,
  ): Promise<{ readonly waitMs: number; readonly isUnseen: boolean }> {
    const { isSoftState = false, settleMs } = this.options;
    const keep = { waitMs: Infinity, isUnseen: false };
    if (!isSoftState) return (await this.isOpen(id)) ? keep : { ...keep, waitMs: 0 };
    // Whoever leads may rely on it by now.
    if (this.options.otherHolder?.() !== undefined) return keep;
    const trace = wasBegun ? 'claim' : 'none';
    const answer = await this.run(finalizerScript, id, { id, settleMs, trace });
    return answer.kind === 'keep' ? keep : answer;
  }

  async isOpen(id: string): Promise<boolean> {
    return (await askRedis(this.options.redis.hexists(this.driverKeys.openKey, id))) === 1;
  }

  /** The ids of the open records of a job, for jobs whose key does not contain the id. Reads all
   * open records. */
  async openIdsOf(job: JobKey): Promise<readonly string[]> {
    const { redis, prefix, driver } = this.options;
    const open = await askRedis(openJobs(redis, prefix, driver));
    return [...open].filter(([, key]) => keyId(key) === keyId(job)).map(([id]) => id);
  }

  #notOpened(answer: NotOpened): ReturnType<typeof explainNotOpened> {
    if (answer.kind === 'stale') this.#dataEpoch = answer.dataEpoch;
    if (answer.kind === 'went-back') this.leftOpenCreations.wentBack(answer.count);
    const explained = explainNotOpened(answer, this.options.isSoftState);
    if (explained.kind === 'not-yet' && explained.isForAll)
      this.#notYet = { answer: explained, endMs: performance.now() + explained.waitMs };
    if (explained.kind === 'not-yet' && explained.isHalt)
      this.#halt = { answer: explained, endMs: performance.now() + HALT_KNOWN_MS };
    return explained;
  }

  #openingArgs(id: string, { owner, job, dataEpoch = '', wasBegun = false }: Opening) {
    const { ownMs, settleMs, otherHolder, isSoftState = false } = this.options;
    const traces = isSoftState ? (['claim', 'none'] as const) : (['finalizer', 'records'] as const);
    return {
      owner,
      ownMs,
      settleMs,
      seenDataEpoch: dataEpoch,
      otherHolder: otherHolder?.() ?? '',
      trace: traces[wasBegun ? 0 : 1],
      id,
      job: encodeJob(job),
      ...this.leftOpenCreations.countArgs,
    };
  }

  async #open<T>(id: string, owner: string, open: () => Promise<T>): Promise<T> {
    await this.repeatEnd(id);
    try {
      return await open();
    } catch (error) {
      if (error instanceof RecordsUnavailable) this.revertLater(id, owner);
      throw error;
    }
  }
}

/** For how long runs need not ask again whether there is a halt. */
const HALT_KNOWN_MS = 1_000;

function endpointField(endpoint: string): { readonly endpoint?: string } {
  return endpoint === '' ? {} : { endpoint };
}
