import type { Redis } from 'ioredis';

/** What a failover lost. Of the records, the ids are named as they are in the volumes' names. */
export interface LostData {
  /** Keys that were written, changed or removed in the part that was lost. */
  readonly keys: number;
  /** Volume records among them. */
  readonly records: readonly string[];
  /** Records that were open, and of which nothing is left. */
  readonly forgotten: readonly string[];
  /** Records that were closed, and are open again. */
  readonly reopened: readonly string[];
}

/** A failover, with its times in Unix ms. */
export interface DataLoss extends LostData {
  /** When the replication ended: what was written later is lost. */
  readonly splitMs: number;
  readonly killedMs: number;
  /** When clients could reach the new master. */
  readonly overMs: number;
}

/** All data of a Redis. */
export interface RedisData {
  /** The value of each key, in a form that is equal on both servers for equal values. */
  readonly values: ReadonlyMap<string, string>;
  /** Ids of the volume records. */
  readonly records: ReadonlySet<string>;
  /** Ids of the open ones. */
  readonly open: ReadonlySet<string>;
}

const RECORD = /^\{[^}]+\}:volume:[^:]+:(.+)$/;
const OPEN_RECORDS = /^\{[^}]+\}:open:/;
const KEYS_PER_SCAN = 1_000;

/** Reads all keys, without changing anything. */
export async function readData(redis: Redis): Promise<RedisData> {
  const values = new Map<string, string>();
  const open = new Set<string>();
  for (let cursor: string | undefined; cursor !== '0';) {
    const [next, keys] = await redis.scan(cursor ?? '0', 'COUNT', KEYS_PER_SCAN);
    cursor = next;
    const texts = await Promise.all(keys.map((key) => readValue(redis, key)));
    for (const [i, key] of keys.entries()) {
      const text = texts[i];
      // A key may have expired meanwhile.
      if (text !== undefined) values.set(key, text);
    }
    const ids = keys.filter((key) => OPEN_RECORDS.test(key)).map((key) => redis.hkeys(key));
    for (const id of (await Promise.all(ids)).flat()) open.add(id);
  }
  return { values, open, records: new Set([...values.keys()].flatMap(recordIdOf)) };
}

async function readValue(redis: Redis, key: string): Promise<string | undefined> {
  // DUMP gives the fields of a large hash in an order that differs from server to server.
  if ((await redis.type(key)) === 'hash')
    return JSON.stringify(Object.entries(await redis.hgetall(key)).sort());
  const dump = await redis.dumpBuffer(key);
  return (dump as Buffer | null)?.toString('latin1');
}

function recordIdOf(key: string): readonly string[] {
  const id = RECORD.exec(key)?.[1];
  return id === undefined ? [] : [id];
}

/** Compares what the old master had written with what its replica has. */
export function compareData(written: RedisData, kept: RedisData): LostData {
  const keys = [...new Set([...written.values.keys(), ...kept.values.keys()])].filter(
    (key) => written.values.get(key) !== kept.values.get(key),
  );
  const records = keys.flatMap(recordIdOf);
  return {
    keys: keys.length,
    records,
    forgotten: records.filter((id) => written.open.has(id) && !kept.records.has(id)),
    reopened: records.filter((id) => !written.open.has(id) && kept.open.has(id)),
  };
}
