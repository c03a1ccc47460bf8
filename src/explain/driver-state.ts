import { redisActiveGateway } from '../gateway-client/active-gateway.ts';
import { type DriverNote, readDriverNote } from '../hints/driver-note.ts';
import { showHistory } from '../queue/history.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { type ProcessEntry, readProcesses } from '../redis/processes.ts';

/** What Redis says about all claims of a driver. */
export interface DriverState {
  readonly driver: string;
  /** The processes of the installation. */
  readonly processes: readonly ProcessEntry[];
  /** Whether our leader has confirmed Redis' data. Before that, workers call nothing. */
  readonly isConfirmed: boolean;
  readonly otherProvisioner: string | undefined;
  /** Who drains the driver, and since when. */
  readonly drain: DriverNote['drain'];
  /** Address of the active gateway; '' if none is named. */
  readonly gateway: string;
  /** Why the leader can't reach the driver; undefined while it can. */
  readonly driverTrouble: string | undefined;
  /** The leader's note about the journal. */
  readonly journal: Pick<DriverNote, 'entries' | 'inDoubt' | 'doubtEndsMs' | 'journalTrouble'>;
}

/** Reads the state. Rejects while Redis can't be reached. */
export async function readDriverState(place: RedisPlace): Promise<DriverState> {
  const { redis, prefix, driver } = place;
  const [processes, note, { isOfHistory }, gateway] = await Promise.all([
    readProcesses(redis, prefix),
    readDriverNote(place),
    showHistory(place),
    redisActiveGateway(place).read(),
  ]);
  const { otherProvisioner, drain, driverTrouble, ...journal } = note;
  const known = { isConfirmed: isOfHistory, otherProvisioner, drain, driverTrouble, journal };
  return { driver, processes, ...known, gateway: gateway.endpoint };
}

/** The instance of the ingest that leads the driver; undefined if none leads. */
export function leaderOf({ processes, driver }: DriverState): string | undefined {
  return processes.find(({ process, drivers }) => process === 'ingest' && drivers.includes(driver))
    ?.instance;
}

/** The jobs processes that take the jobs of the driver. */
export function workersOf({
  processes,
  driver,
}: Pick<DriverState, 'processes' | 'driver'>): readonly string[] {
  return processes
    .filter(({ process, drivers }) => process === 'jobs' && drivers.includes(driver))
    .map(({ instance }) => instance);
}
