import type { RedisLink } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { defineScript } from '../redis/named-script.ts';

/** The resources that notices are about: claims and volumes, of the core group. */
export const NOTICED_RESOURCES = ['persistentvolumeclaims', 'persistentvolumes'] as const;

/** Says that an object may have changed. It may come late, twice, out of order, or name an object
 * that never comes to be, so whoever gets it reads the object afresh. */
export interface ChangeNotice {
  readonly resource: (typeof NOTICED_RESOURCES)[number];
  /** '' for a volume. */
  readonly namespace: string;
  readonly name: string;
  /** Sent before the API server has stored the object, as admission webhooks are: look a moment
   * later, and again. */
  readonly isEarly: boolean;
}

/* The notices of an installation, on their way from any ingest to those that lead a driver. A
 * stream with one entry for each notice, its fields: resource, namespace, name, early ('1' or '0').
 * An entry with the one field `mark` is no notice: a reader left it to begin behind it. */

/** The stream is cut to about this number of entries when one is added, 4 MB at most. */
const MAX_ENTRIES = 10_000;
const MAX_READ = 1_000;

/** Adds notices, four arguments each, after the largest number of entries. */
const appendScript = defineScript(`
for i = 2, #ARGV, 4 do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'resource', ARGV[i],
    'namespace', ARGV[i + 1], 'name', ARGV[i + 2], 'early', ARGV[i + 3])
end
`);

/** The id of an entry that a reader has read. */
export type NoticePosition = string;

export interface ReadNotices {
  readonly notices: readonly ChangeNotice[];
  readonly position: NoticePosition;
  /** Whether notices after the earlier position may be lost: too many came, or Redis lost data. */
  readonly isGap: boolean;
}

export type NoticeStream = ReturnType<typeof redisNoticeStream>;

/** Stream of the notices of an installation. */
export function noticeStreamKey(prefix: string): string {
  return `${keyPrefix(prefix)}:notices`;
}

/** The notices of an installation. All methods reject while Redis can't be reached.
 * @param redis  for readNotices: a connection that nobody else uses, since reading blocks it */
export function redisNoticeStream(redis: RedisLink['redis'], prefix: string) {
  const key = noticeStreamKey(prefix);
  const mark = async (): Promise<NoticePosition> => {
    const id = await redis.xadd(key, 'MAXLEN', '~', MAX_ENTRIES, '*', 'mark', '');
    if (id === null) throw new Error('Redis added no entry to the stream of notices');
    return id;
  };
  return {
    /** Adds notices with one command. */
    async appendNotices(notices: readonly ChangeNotice[]): Promise<void> {
      if (notices.length === 0) return;
      await appendScript.run(redis, [key], [MAX_ENTRIES, ...notices.flatMap(encodeNotice)]);
    },
    /** The position behind all notices that there are now. */
    markEnd: mark,
    /** Reads the notices after a position, up to 1,000, in order.
     * @param waitMs  how long to wait for the first one; less than the 5 s after which a
     *                connection gives a command up */
    async readNotices(after: NoticePosition, waitMs: number): Promise<ReadNotices> {
      const reading = redis.xread('COUNT', MAX_READ, 'BLOCK', waitMs, 'STREAMS', key, after);
      // Redis answers it after the first command. If the entry is still there, so was all after it.
      const checking = redis.xrange(key, after, after);
      const [streams, known] = await Promise.all([reading, checking]);
      const entries = streams?.[0]?.[1] ?? [];
      const isGap = known.length === 0;
      return {
        notices: entries.flatMap(([, fields]) => decodeNotice(fields) ?? []),
        position: entries.at(-1)?.[0] ?? (isGap ? await mark() : after),
        isGap,
      };
    },
  };
}

function encodeNotice({ resource, namespace, name, isEarly }: ChangeNotice): readonly string[] {
  return [resource, namespace, name, isEarly ? '1' : '0'];
}

/** @param fields  names and values in turn
 * @returns undefined for a mark, and for what another version may have written */
function decodeNotice(fields: readonly string[]): ChangeNotice | undefined {
  const valueOf = (field: string): string | undefined =>
    fields.find((_, i) => i % 2 === 1 && fields[i - 1] === field);
  const resource = NOTICED_RESOURCES.find((known) => known === valueOf('resource'));
  const namespace = valueOf('namespace');
  const name = valueOf('name');
  if (resource === undefined || namespace === undefined || name === undefined) return undefined;
  return { resource, namespace, name, isEarly: valueOf('early') === '1' };
}

/** Notices that wait for Redis; further ones are refused. */
const MAX_WAITING = 10_000;
/** How long somebody waits for a notice to be stored. */
const WAIT_MS = 2_000;

/** The notice is not stored, or it is not known whether it is. */
export class NoticesUnavailable extends Error {
  override readonly name = 'NoticesUnavailable';
}

/** Stores notices in Redis, in bounded number and time. */
export class NoticeWriter {
  readonly #append: (notices: readonly ChangeNotice[]) => Promise<void>;
  readonly #trouble: () => string | undefined;
  #waiting = 0;

  /** @param o.trouble  why Redis can't be reached; undefined while it can */
  constructor(o: {
    readonly append: (notices: readonly ChangeNotice[]) => Promise<void>;
    readonly trouble: () => string | undefined;
  }) {
    this.#append = o.append;
    this.#trouble = o.trouble;
  }

  /** Resolves when all notices are stored.
   * @throws NoticesUnavailable if they can't be stored now */
  async write(notices: readonly ChangeNotice[]): Promise<void> {
    const trouble = this.#trouble();
    if (trouble !== undefined) throw new NoticesUnavailable(trouble);
    if (this.#waiting + notices.length > MAX_WAITING)
      throw new NoticesUnavailable('too many notices wait for Redis');
    this.#waiting += notices.length;
    const stored = this.#append(notices).finally(() => (this.#waiting -= notices.length));
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const text = `Redis did not answer within ${WAIT_MS / 1000} s`;
      timer = setTimeout(() => reject(new NoticesUnavailable(text)), WAIT_MS);
    });
    try {
      await Promise.race([stored, late]);
    } catch (cause) {
      if (cause instanceof NoticesUnavailable) throw cause;
      throw new NoticesUnavailable('Redis did not take a notice', { cause });
    } finally {
      clearTimeout(timer);
    }
  }
}
