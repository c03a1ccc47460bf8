import { readHeartbeat } from '../queue/heartbeat.ts';
import { queueName } from '../queue/queue-keys.ts';
import { redisActiveGateway } from '../gateway-client/active-gateway.ts';
import { type DriverNote, readDriverNote } from '../hints/driver-note.ts';
import { showHistory } from '../queue/history.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { type ProcessEntry, readProcesses } from '../redis/processes.ts';
import { age } from '../runtime/printable.ts';

/** What Redis says about all claims of a driver. */
export interface DriverState {
  readonly driver: string;
  /** The processes of the installation. */
  readonly processes: readonly ProcessEntry[];
  /** A leader of ours has begun with Redis' data, without which nothing is called. */
  readonly isConfirmed: boolean;
  readonly otherProvisioner: string | undefined;
  /** Who drains it, since when. */
  readonly drain: DriverNote['drain'];
  /** Address of the active gateway; '' if none is named. */
  readonly gateway: string;
  /** How long ago a worker of claims was alive; undefined: never. */
  readonly workerAgeMs: number | undefined;
  /** What the leader says of the journal. */
  readonly journal: Pick<DriverNote, 'entries' | 'inDoubt' | 'doubtEndsMs' | 'journalTrouble'>;
}

/** Reads it. Rejects while Redis can't be reached. */
export async function readDriverState(place: RedisPlace): Promise<DriverState> {
  const { redis, prefix, driver } = place;
  const queue = queueName('claim', driver);
  const [processes, note, { isOfHistory }, gateway, workerAgeMs] = await Promise.all([
    readProcesses(redis, prefix),
    readDriverNote(place),
    showHistory(place),
    redisActiveGateway(place).read(),
    readHeartbeat(redis, { prefix, queue }),
  ]);
  const { otherProvisioner, drain, ...journal } = note;
  const known = { isConfirmed: isOfHistory, otherProvisioner, drain, journal };
  return { driver, processes, ...known, gateway: gateway.endpoint, workerAgeMs };
}

/** The instance of the ingest that leads the driver; undefined: none does. */
export function leaderOf({ processes, driver }: DriverState): string | undefined {
  return processes.find(({ leads }) => leads.includes(driver))?.instance;
}

/** A worker writes a heartbeat each second. Longer without one: none lives. */
const WORKER_GONE_MS = 3_000;

/** Whether a worker takes the jobs of the driver. */
export function hasWorker(state: Pick<DriverState, 'workerAgeMs'>): boolean {
  return whyNoWorker(state) === undefined;
}

/** For people; undefined: there is one. */
export function whyNoWorker({
  workerAgeMs: ageMs,
}: Pick<DriverState, 'workerAgeMs'>): string | undefined {
  if (ageMs === undefined) return 'no worker was seen';
  return ageMs < WORKER_GONE_MS ? undefined : `no worker for ${age(ageMs)}`;
}
