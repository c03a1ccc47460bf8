import { randomUUID } from 'node:crypto';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { defineNamedScript, type NamedScript } from '../redis/named-script.ts';
import type { VolumeAnswer } from '../volumes/persistent-volume.ts';
import { askRedis, RecordsUnavailable } from './ask-redis.ts';
import { DUPLICATE_LEFT } from './forget.ts';
import {
  activeGatewayKey,
  begunKey,
  dataEpochKey,
  openingCountKey,
  openRecordsKey,
  volumeRecordKey,
} from './key-names.ts';
import { LeftOpenCreations } from './lost-records.ts';
import { RECORD_NOW } from './record-clock.ts';
import type { RecordKeys } from './record-seal.ts';
import {
  NOT_OPENED,
  RECORD_KEYS,
  RECORD_STATES,
  type RecordKey,
  REMEMBERED_S,
  REQUIRE_OWNER,
  TAKE_OVER,
} from './record-scripts.ts';
import { SealedRequests } from './stored-request.ts';

/* How an attempt ends: the scripts that leave or close a record, and the methods that call them.
 * record-scripts.ts explains keys, fields and common arguments. */

/** Lua: the record becomes `stored` and unambiguous, and expires after a day. It keeps when the
 * last call of unknown end ended at the latest, for a deletion (record rule 5). It is written anew:
 * Redis keeps a hash of few short fields in a third of the memory, but not one that was longer
 * before. */
const BECOME_STORED = `
local attempts, since, call = unpack(redis.call('HMGET', recordKey, 'n', 'since', 'call'))
redis.call('DEL', recordKey)
redis.call('HSET', recordKey, 'v', '1', 'state', 'stored', 'owner', '', 'amb', '0',
  'n', attempts or '1', 'since', since or '0')
if (tonumber(call) or 0) > 0 then redis.call('HSET', recordKey, 'call', call) end
redis.call('EXPIRE', recordKey, ${REMEMBERED_S})
`;

/** `creating` to `stored`: the PV exists. */
const closeStoredScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', id: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${REQUIRE_OWNER}
redis.call('HDEL', openKey, id)
${BECOME_STORED}
return {'ok'}
`,
});

/** `creating` to no record where the driver's refusal proves absence, else to `suspect` (record
 * rule 4). The settle time must have been over when the attempt was opened, not only now: an
 * earlier call may create the volume between the refusal and this script. A record that was
 * `stored` before this attempt becomes `stored` again, unambiguous: the driver did create the
 * volume. */
const closeRefusedScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', id: 'text', code: 'text' },
  answers: { lost: {}, removed: {}, suspect: {} },
  lua: `${REQUIRE_OWNER}
local amb, prev, isSettled = unpack(redis.call('HMGET', recordKey, 'amb', 'prev', 'st'))
if amb == '1' and isSettled ~= '1' then
  redis.call('HSET', recordKey, 'state', 'suspect', 'owner', '', 'code', code)
  return {'suspect'}
end
redis.call('HDEL', openKey, id)
if string.sub(prev or '', 1, 7) == 'stored ' then ${BECOME_STORED}
else redis.call('DEL', recordKey) end
return {'removed'}
`,
});

/** `creating`, ambiguous from now on and without owner: the end of the call is unknown. */
const leaveAmbiguousScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', code: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${REQUIRE_OWNER}
local untilMs, call = unpack(redis.call('HMGET', recordKey, 'until', 'call'))
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'amb', '1',
  'call', math.max(tonumber(call or 0), tonumber(untilMs or 0)), 'code', code)
redis.call('HDEL', recordKey, 'ans')
return {'ok'}
`,
});

/** `creating`, unambiguous and without owner: the driver created the volume, but the PV could not
 * be written. The next run only writes it. */
const leaveAnsweredScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', answer: 'text', code: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${REQUIRE_OWNER}
redis.call('HSET', recordKey, 'state', 'creating', 'owner', '', 'amb', '0', 'ans', answer,
  'code', code)
return {'ok'}
`,
});

/** `deleting` to `gone`: the driver deleted the volume.
 *
 * goneMs    for how long no creation is opened */
const closeGoneScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', id: 'text', goneMs: 'number' },
  answers: { lost: {}, ok: {} },
  lua: `${RECORD_NOW}${REQUIRE_OWNER}
local handle = redis.call('HGET', recordKey, 'handle') or ''
redis.call('DEL', recordKey)
redis.call('HSET', recordKey, 'v', '1', 'state', 'gone', 'owner', '', 'amb', '0', 'handle', handle,
  'until', now + goneMs)
redis.call('EXPIRE', recordKey, ${REMEMBERED_S})
redis.call('HDEL', openKey, id)
return {'ok'}
`,
});

/** `deleting` without owner: DeleteVolume failed, or its end is unknown. */
const leaveDeletingScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', code: 'text' },
  answers: { lost: {}, ok: {} },
  lua: `${REQUIRE_OWNER}
local untilMs = redis.call('HGET', recordKey, 'until')
redis.call('HSET', recordKey, 'owner', '', 'code', code, 'call', untilMs or 0)
return {'ok'}
`,
});

/** `deleting` to `stored`, because the PV is to be kept after all, or to `gone`, because the PV has
 * vanished. Refuses while another owner is live. Answers `none` where no deletion is open. */
const endDeletionScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', id: 'text', goneMs: 'number', to: ['stored', 'gone'] },
  answers: { ok: {}, none: {}, busy: NOT_OPENED.busy },
  lua: `${RECORD_NOW}${TAKE_OVER}
if state ~= 'deleting' then return {'none'} end
redis.call('HDEL', openKey, id)
redis.call('HDEL', recordKey, 'prev', 'code', 'call')
redis.call('HSET', recordKey, 'state', to, 'owner', '', 'until', to == 'gone' and now + goneMs or 0)
redis.call('EXPIRE', recordKey, ${REMEMBERED_S})
return {'ok'}
`,
});

/** `creating` or `deleting` to the state before this attempt, since nothing was sent. Answers that
 * state, or `none` where there was no record.
 *
 * code      a word of forget.ts, '' to keep the last code */
const revertScript = defineNamedScript({
  keys: RECORD_KEYS,
  args: { owner: 'text', id: 'text', code: 'text' },
  answers: { lost: {}, reverted: { state: ['none', ...RECORD_STATES] } },
  lua: `${REQUIRE_OWNER}
local prev = redis.call('HGET', recordKey, 'prev') or ''
if prev == '' then
  redis.call('DEL', recordKey)
  redis.call('HDEL', openKey, id)
  return {'reverted', 'state', 'none'}
end
local state, amb, n = string.match(prev, '^(%a+) (%d) (%d+)$')
redis.call('HSET', recordKey, 'state', state, 'amb', amb, 'n', n, 'owner', '')
-- A duplicate that is left is not forgotten over another word.
if code ~= '' and redis.call('HGET', recordKey, 'code') ~= '${DUPLICATE_LEFT}' then
  redis.call('HSET', recordKey, 'code', code)
end
if state == 'stored' then
  redis.call('HDEL', openKey, id)
  redis.call('EXPIRE', recordKey, ${REMEMBERED_S})
end
return {'reverted', 'state', state}
`,
});

/** Thrown when another run has taken the record over: this run may not write any more. */
export class OwnershipLost extends Error {
  override readonly name = 'OwnershipLost';
}

export interface VolumeRecordsOptions extends RedisPlace {
  /** How long one attempt owns a record; see ownershipMs. */
  readonly ownMs: number;
  /** The settle time: how long after an ambiguous call's end a refusal does not prove absence. */
  readonly settleMs: number;
  /** The data of Redis ends with this process, and claims have our finalizer while their record is
   * open; see record-scripts.ts. */
  readonly isSoftState?: boolean;
  /** Unique to this process, and readable by people; random unless given. */
  readonly processName?: string;
  /** What --record-key-file says now; undefined without the flag. */
  readonly keys?: (() => RecordKeys | undefined) | undefined;
  /** The other provisioner that holds the Lease, as far as this process knows. */
  readonly otherHolder?: () => string | undefined;
}

/** Ends the attempts on the volume records of one driver. Methods throw OwnershipLost, or
 * RecordsUnavailable while Redis can't be reached. */
export class RecordEnds {
  protected readonly options: VolumeRecordsOptions;
  protected readonly driverKeys: Readonly<Record<Exclude<RecordKey, 'recordKey'>, string>>;
  protected readonly leftOpenCreations: LeftOpenCreations;
  protected readonly requests: SealedRequests;
  /** By record: the end of a run's attempt that Redis did not take. */
  readonly #unended = new Map<string, () => Promise<unknown>>();

  constructor(options: VolumeRecordsOptions) {
    const { prefix, driver, processName = randomUUID() } = options;
    this.options = options;
    this.driverKeys = {
      openKey: openRecordsKey(prefix, driver),
      dataEpochKey: dataEpochKey(prefix, driver),
      gatewayKey: activeGatewayKey(prefix, driver),
      countKey: openingCountKey(prefix, driver, processName),
      begunKey: begunKey(prefix, driver),
    };
    const keys = this.driverKeys;
    this.leftOpenCreations = new LeftOpenCreations({ ...options, keys, processName });
    this.requests = new SealedRequests(options, options.keys);
  }

  /** The PV exists: our own call succeeded, or the settle time of earlier ones is over. */
  async closeStored(id: string, owner: string): Promise<void> {
    await this.#end(id, async () => {
      await this.run(closeStoredScript, id, { owner, id });
      this.leftOpenCreations.forget(id);
    });
  }

  /** The driver refused.
   * @returns `removed` where that proves absence, so that a living claim may be planned anew */
  closeRefused(id: string, owner: string, code: string): Promise<'removed' | 'suspect'> {
    return this.#end(id, async () => {
      const { kind } = await this.run(closeRefusedScript, id, { owner, id, code });
      if (kind === 'removed') this.leftOpenCreations.forget(id);
      return kind;
    });
  }

  async leaveAmbiguous(id: string, owner: string, code: string): Promise<void> {
    await this.#end(id, () => this.run(leaveAmbiguousScript, id, { owner, code }));
  }

  /** The volume exists but its PV could not be written: keeps the answer, so that the next run only
   * writes the PV.
   * @param code  where only an operator can end it; see forget.ts */
  async leaveAnswered(id: string, owner: string, answer: VolumeAnswer, code = ''): Promise<void> {
    const args = { owner, answer: this.requests.encodeAnswer(id, answer), code };
    await this.#end(id, () => this.run(leaveAnsweredScript, id, args));
  }

  /** Nothing was sent: the record is as it was before this attempt.
   * @param code  where only an operator can end it; see forget.ts */
  async revert(id: string, owner: string, code = ''): Promise<void> {
    await this.#end(id, async () => {
      const { state } = await this.run(revertScript, id, { owner, id, code });
      if (state === 'none' || state === 'stored') this.leftOpenCreations.forget(id);
    });
  }

  /** The driver deleted the volume. */
  async closeGone(id: string, owner: string): Promise<void> {
    await this.#end(id, async () => {
      await this.run(closeGoneScript, id, { owner, id, goneMs: this.#goneMs });
      this.leftOpenCreations.forget(id);
    });
  }

  /** DeleteVolume failed, or its end is unknown. */
  async leaveDeleting(id: string, owner: string, code: string): Promise<void> {
    await this.#end(id, () => this.run(leaveDeletingScript, id, { owner, code }));
  }

  /** Ends an open deletion without a call: the PV is to be kept (`stored`) or has vanished
   * (`gone`).
   * @returns `none` where no deletion is open, `busy` while another owner is live */
  async endDeletion(
    id: string,
    owner: string,
    to: 'stored' | 'gone',
  ): Promise<'ok' | 'none' | 'busy'> {
    return (await this.run(endDeletionScript, id, { owner, id, goneMs: this.#goneMs, to })).kind;
  }

  /** Ends the attempts whose end Redis did not take. Checks the creations that this process left
   * open, and whether Redis went back; see lost-records.ts.
   * @returns the jobs whose records were written again */
  async rewriteLostRecords() {
    for (const id of this.#unended.keys()) await this.repeatEnd(id);
    return this.leftOpenCreations.rewrite();
  }

  /** Number of creations that this process left open. */
  get leftOpen(): number {
    return this.leftOpenCreations.size;
  }

  /** How long it is remembered that a volume was deleted: as long as a call that was begun before
   * may still arrive. */
  get #goneMs(): number {
    return this.options.ownMs + this.options.settleMs;
  }

  /** Ends a run's attempt. If Redis can't be reached, that is repeated when it can: otherwise
   * nobody could go on with the record before the run's ownership ends. */
  async #end<T>(id: string, end: () => Promise<T>): Promise<T> {
    this.#unended.delete(id);
    try {
      return await end();
    } catch (error) {
      if (error instanceof RecordsUnavailable) this.#unended.set(id, end);
      throw error;
    } finally {
      this.leftOpenCreations.runEnded(id);
    }
  }

  /** Redis gave no answer to an opening: nothing is sent, but the record may be open. */
  protected revertLater(id: string, owner: string): void {
    this.#unended.set(id, () => this.run(revertScript, id, { owner, id, code: '' }));
  }

  /** Does nothing where Redis took the end. Once another run has the record, there is nothing to
   * end any more. */
  protected async repeatEnd(id: string): Promise<void> {
    const end = this.#unended.get(id);
    if (end === undefined) return;
    await this.#end(id, end).catch((error: unknown) => {
      if (!(error instanceof OwnershipLost)) throw error;
    });
  }

  protected async run<Args, Answer extends { readonly kind: string }>(
    script: NamedScript<RecordKey, Args, Answer>,
    id: string,
    args: Args,
  ): Promise<Exclude<Answer, { readonly kind: 'lost' }>> {
    const { redis, prefix, driver } = this.options;
    const keys = { recordKey: volumeRecordKey(prefix, driver, id), ...this.driverKeys };
    const answer = await askRedis(script.run(redis, keys, args));
    if (answer.kind === 'lost')
      throw new OwnershipLost(
        `another run took over the record of volume ${id}; this run's result is not written`,
      );
    return answer as Exclude<Answer, { readonly kind: 'lost' }>;
  }
}
