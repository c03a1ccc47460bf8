import { explainForOperator } from '../../records/forget.ts';
import type { OpenRecord } from '../../records/open-records.ts';
import type { DrainState } from './drain-state.ts';

/** Records of which each has a line. */
const SHOWN = 100;
/** Longer without a heartbeat: no worker lives. */
const WORKER_GONE_MS = 10_000;

/** A line for each change of the number of open records. */
export function describeProgress(open: number, nowMs: number): string {
  return `${new Date(nowMs).toISOString()} ${open} open volume records`;
}

/** What a drain has come to: what is open and what each record waits for, or what to do next.
 * @param hasWaited  with --wait */
export function describeDrain(
  driver: string,
  state: DrainState,
  hasWaited: boolean,
): readonly string[] {
  const { otherProvisioner, isConfirmed, records } = state;
  const lines = [
    `${driver} is drained: sutler finishes open volume records and starts nothing new`,
  ];
  if (otherProvisioner !== undefined)
    lines.push(`${otherProvisioner} holds the driver's Lease, or was the last that did`);
  if (records.length > 0 && !isConfirmed)
    lines.push('no ingest of sutler has confirmed the data of Redis: start one, see its /readyz');
  if (records.length > 0)
    lines.push(...describeWorkers(state), ...describeRecords(driver, state, hasWaited));
  else lines.push(...describeEnd(driver, state));
  return lines;
}

function describeWorkers({ workerAgeMs }: DrainState): readonly string[] {
  if (workerAgeMs !== undefined && workerAgeMs < WORKER_GONE_MS) return [];
  const since =
    workerAgeMs === undefined ? 'no worker was seen' : `no worker for ${secondsOf(workerAgeMs)}`;
  return [`${since}: start jobs, which finishes open records`];
}

function describeRecords(
  driver: string,
  { records }: DrainState,
  hasWaited: boolean,
): readonly string[] {
  const count = (state: string): string =>
    `${records.filter((record) => record.state === state).length} ${state}`;
  const counts = ['suspect', 'creating', 'deleting'].map(count).join(', ');
  const more = records.length - SHOWN;
  return [
    `${records.length} volume records are open (${counts}); sutler can't be taken out yet:`,
    ...records.slice(0, SHOWN).map((record) => describeRecord(driver, record)),
    ...(more > 0 ? [`  and ${more} more`] : []),
    (hasWaited ? '' : 'run this again with --wait, or ') +
      'drop what can never end with sutler forget UID',
  ];
}

function describeRecord(driver: string, record: DrainState['records'][number]): string {
  const { state, object, id, reason } = record;
  const last = reason === undefined ? '' : `; last run: ${reason}`;
  return `  ${state}  ${object}  ${id}  ${waitOf(driver, record)}${last}`;
}

function waitOf(driver: string, record: OpenRecord): string {
  const { id, state, ambiguous, handle, lastCode, ownedForMs, callEndMs } = record;
  const after = lastCode === '' ? '' : ` after ${lastCode}`;
  if (ownedForMs > 0) return `a run has it, for ${secondsOf(ownedForMs)} at most`;
  const help = explainForOperator(id, driver, lastCode);
  if (help !== undefined) return help;
  if (state === 'deleting') return `its DeleteVolume is sent again${after}`;
  if (state === 'suspect')
    return (
      `the driver refused (${lastCode}), but a call of before may still create the volume: its ` +
      `CreateVolume is sent again until --settle-time after ${new Date(callEndMs).toISOString()}`
    );
  if (handle !== undefined) return 'its volume exists, and its PersistentVolume is written next';
  return `its CreateVolume is sent again${after}${ambiguous ? ', since the end of a call is unknown' : ''}`;
}

function describeEnd(driver: string, { otherProvisioner, keys }: DrainState): readonly string[] {
  const next =
    otherProvisioner === undefined
      ? 'stop its ingest, which releases the Lease at once, then start external-provisioner'
      : 'stop its processes';
  return [
    `no volume record is open; sutler can be taken out: ${next}`,
    `${keys.claims} claims and ${keys.volumes} volumes wait here for new work; they are ` +
      "external-provisioner's as soon as it leads",
    `to go on with sutler in its place: sutler drain --driver-name=${driver} --undo`,
  ];
}

function secondsOf(ms: number): string {
  return `${Math.ceil(ms / 1000)} s`;
}
