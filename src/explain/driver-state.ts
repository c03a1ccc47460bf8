import { readHeartbeat } from '../queue/heartbeat.ts';
import { queueName } from '../queue/queue-keys.ts';
import { redisActiveGateway } from '../records/active-gateway.ts';
import { quarantineLeftMs } from '../records/data-epoch.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { type Drain, redisDrain } from '../records/provisioning-pause.ts';
import { type ProcessEntry, readProcesses } from '../redis/processes.ts';
import { age } from '../runtime/printable.ts';

/** What Redis says about all claims of a driver. */
export interface DriverState {
  readonly driver: string;
  /** The processes of the installation. */
  readonly processes: readonly ProcessEntry[];
  /** A leader of ours has confirmed Redis' data, without which no run does anything. */
  readonly isConfirmed: boolean;
  /** How long nothing may be opened, since Redis lost data; 0: at once. */
  readonly quarantineMs: number;
  readonly otherProvisioner: string | undefined;
  /** Who drains it, since when. */
  readonly drain: Drain | undefined;
  /** Address of the active gateway; '' if none is named. */
  readonly gateway: string;
  /** How long ago a worker of claims was alive; undefined: never. */
  readonly workerAgeMs: number | undefined;
  readonly openRecords: number;
}

/** Reads it. Rejects while Redis can't be reached. */
export async function readDriverState(place: RedisPlace): Promise<DriverState> {
  const { redis, prefix, driver } = place;
  const queue = queueName('claim', driver);
  const [processes, pause, quarantineMs, gateway, workerAgeMs] = await Promise.all([
    readProcesses(redis, prefix),
    redisDrain(redis, prefix, driver).read(),
    quarantineLeftMs(place),
    redisActiveGateway(redis, prefix, driver).read(),
    readHeartbeat(redis, { prefix, queue }),
  ]);
  const { isConfirmed, otherProvisioner, drain, open: openRecords } = pause;
  const known = { isConfirmed, otherProvisioner, drain, openRecords };
  return { driver, processes, ...known, quarantineMs, gateway: gateway.endpoint, workerAgeMs };
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
