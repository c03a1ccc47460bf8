import type { RedisLink } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-prefix.ts';

/** The resources that notices are about: claims and volumes, of the core group. */
export const NOTICED_RESOURCES = ['persistentvolumeclaims', 'persistentvolumes'] as const;

/** Says that an object may have changed. It may come late, twice or out of order, or name an object
 * that is never created, so ingest reads the object from the API server. */
export interface ChangeNotice {
  readonly resource: (typeof NOTICED_RESOURCES)[number];
  /** '' for a volume. */
  readonly namespace: string;
  readonly name: string;
}

/* A stream of notices from any ingest of an installation to those that lead a driver. Each notice
 * is an entry with the fields resource, namespace and name. An entry with the single field `mark`
 * is a reader's starting point. */

/** Redis cuts the stream to about this number of entries (at most 4 MB) when one is added. */
const MAX_ENTRIES = 10_000;

/** The id of an entry that a reader has read. */
export type NoticePosition = string;

export interface ReadNotices {
  readonly notices: readonly ChangeNotice[];
  readonly position: NoticePosition;
  /** Whether notices after the earlier position may be lost: too many came, or Redis lost data. */
  readonly isGap: boolean;
}

/** Stream of the notices of an installation. */
export function noticeStreamKey(prefix: string): string {
  return `${keyPrefix(prefix)}:notices`;
}

type NoticeLink = Pick<RedisLink, 'redis' | 'trouble'>;

/** The notices of an installation. All methods reject while Redis can't be reached. */
export class NoticeStream {
  readonly #link: NoticeLink;
  readonly #key: string;

  /** @param link  for `read`: a connection of its own, because reading blocks it */
  constructor(link: NoticeLink, prefix: string) {
    this.#link = link;
    this.#key = noticeStreamKey(prefix);
  }

  /** Adds notices. If it rejects, it may have added some. */
  async append(notices: readonly ChangeNotice[]): Promise<void> {
    const { trouble } = this.#link;
    if (trouble !== undefined) throw new Error(trouble);
    await Promise.all(
      notices.map(({ resource, namespace, name }) =>
        this.#add('resource', resource, 'namespace', namespace, 'name', name),
      ),
    );
  }

  /** Marks the present end of the stream. */
  markEnd(): Promise<NoticePosition> {
    return this.#add('mark', '');
  }

  /** Reads the notices after a position, in order.
   * @param o.waitMs  how long to wait for the first notice; less than the 5 s of a command */
  async read(
    after: NoticePosition,
    o: { readonly most: number; readonly waitMs: number },
  ): Promise<ReadNotices> {
    const { redis } = this.#link;
    const stream = ['STREAMS', this.#key, after] as const;
    const reading = redis.xread('COUNT', o.most, 'BLOCK', o.waitMs, ...stream);
    // Sent after the read: if the entry still exists, the read has missed nothing after it.
    const checking = redis.xrange(this.#key, after, after);
    const [streams, known] = await Promise.all([reading, checking]);
    const entries = streams?.[0]?.[1] ?? [];
    const isGap = known.length === 0;
    return {
      notices: entries.flatMap(([, fields]) => decodeNotice(fields) ?? []),
      position: entries.at(-1)?.[0] ?? (isGap ? await this.markEnd() : after),
      isGap,
    };
  }

  async #add(...fields: readonly string[]): Promise<NoticePosition> {
    const { redis } = this.#link;
    const id = await redis.xadd(this.#key, 'MAXLEN', '~', MAX_ENTRIES, '*', ...fields);
    if (id === null) throw new Error('Redis added no entry to the stream of notices');
    return id;
  }
}

/** @param fields  names and values in turn
 * @returns undefined for a mark, and for an entry of another version of sutler */
function decodeNotice(fields: readonly string[]): ChangeNotice | undefined {
  const valueOf = (field: string): string | undefined =>
    fields.find((_, i) => i % 2 === 1 && fields[i - 1] === field);
  const resource = NOTICED_RESOURCES.find((known) => known === valueOf('resource'));
  const namespace = valueOf('namespace');
  const name = valueOf('name');
  if (resource === undefined || namespace === undefined || name === undefined) return undefined;
  return { resource, namespace, name };
}
