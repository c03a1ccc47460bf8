import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/* What an ingest of a driver sees of the driver's Lease and of the journal, for people: commands
 * and the dashboard have no login at the API server for that. A text in Redis that expires soon
 * after the last ingest has written it. */

const EXPIRES_MS = 10_000;

export interface DriverNote {
  /** Another provisioner that holds the driver's Lease. */
  readonly otherProvisioner?: string | undefined;
  /** Who has drained sutler, and when, Unix ms. */
  readonly drain?: { readonly by: string; readonly atMs: number } | undefined;
  /** The rest only of the leader. Why it can't reach the driver. */
  readonly driverTrouble?: string | undefined;
  /** Claims in the journal whose jobs are not finished. */
  readonly entries?: number;
  /** Those of which a call may still be at work in the driver, and until when at most, Unix ms. */
  readonly inDoubt?: number;
  readonly doubtEndsMs?: number;
  /** Why there is no journal. */
  readonly journalTrouble?: string | undefined;
}

/** Writes it. Rejects while Redis can't be reached. */
export async function writeDriverNote(place: RedisPlace, note: DriverNote): Promise<void> {
  await place.redis.set(driverKey(place, 'note'), JSON.stringify(note), 'PX', EXPIRES_MS);
}

/** Reads it; empty where no ingest lives. Rejects while Redis can't be reached. */
export async function readDriverNote(place: RedisPlace): Promise<DriverNote> {
  const text = await place.redis.get(driverKey(place, 'note'));
  const note = text === null ? undefined : parseJson(text);
  return isFields(note) ? note : {};
}
