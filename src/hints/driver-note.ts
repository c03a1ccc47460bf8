import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/* The state of the driver's Lease and of the journal, for people. Ingest writes it to Redis, so
 * that commands and the dashboard need no login at the API server. It expires after 10 s. */

const EXPIRES_MS = 10_000;

export interface DriverNote {
  /** Another provisioner that holds the driver's Lease. */
  readonly otherProvisioner?: string | undefined;
  /** Who has drained sutler, and when, Unix ms. */
  readonly drain?: { readonly by: string; readonly atMs: number } | undefined;
  /** Only the leader writes this and the following fields. Why it can't reach the driver. */
  readonly driverTrouble?: string | undefined;
  /** Claims in the journal whose jobs are not finished. */
  readonly entries?: number;
  /** How many of them are in doubt, and until when at most, Unix ms. */
  readonly inDoubt?: number;
  readonly doubtEndsMs?: number;
  /** Why there is no journal. */
  readonly journalTrouble?: string | undefined;
}

/** Writes the note. Rejects while Redis can't be reached. */
export async function writeDriverNote(place: RedisPlace, note: DriverNote): Promise<void> {
  await place.redis.set(driverKey(place, 'note'), JSON.stringify(note), 'PX', EXPIRES_MS);
}

/** Reads the note; it is empty if no ingest runs. Rejects while Redis can't be reached. */
export async function readDriverNote(place: RedisPlace): Promise<DriverNote> {
  const text = await place.redis.get(driverKey(place, 'note'));
  const note = text === null ? undefined : parseJson(text);
  return isFields(note) ? note : {};
}
