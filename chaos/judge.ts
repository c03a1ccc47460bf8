import type { CallEvent } from './call-log.ts';
import type { DataLoss } from './data-loss.ts';

/** A claim of the workload. */
export interface TrackedClaim {
  readonly name: string;
  readonly uid: string;
  isBound: boolean;
  /** When the deletion was requested, in Unix ms; undefined if it was not. */
  deleteSentMs?: number;
}

/** A PV as the watch last showed it. */
export interface SeenVolume {
  readonly name: string;
  readonly handle: string;
  readonly claimUid: string;
  readonly phase: string;
  /** Whether the watch showed it Released at least once. */
  readonly wasReleased: boolean;
  readonly isThere: boolean;
}

/** A volume that the driver has. */
export interface DriverVolume {
  readonly handle: string;
  readonly name: string;
}

/** The data that a run is judged by. */
export interface Evidence {
  readonly calls: readonly CallEvent[];
  readonly driverVolumes: readonly DriverVolume[];
  readonly volumes: readonly SeenVolume[];
  readonly claims: readonly TrackedClaim[];
  /** Ids of the volume records that are open at the end. */
  readonly openRecords: readonly string[];
  /** What failovers of Redis lost. */
  readonly losses: readonly DataLoss[];
}

/** The violations that were found, one line each. All lists must be empty. */
export interface Verdict {
  /** Volumes that no PV names, and to which no open record and no pending claim leads. */
  readonly leaked: readonly string[];
  /** Claims that should be Bound and are not. */
  readonly lost: readonly string[];
  /** Two calls for one volume at the driver at once, where the earlier one was neither cut nor past
   * its deadline; or two volumes for one UID at once. */
  readonly double: readonly string[];
  /** Volumes created again for a UID whose volume had been deleted, although Redis lost nothing of
   * its record. */
  readonly remade: readonly string[];
  /** DeleteVolume calls for volumes whose claim existed or whose PV was never Released. */
  readonly wrong: readonly string[];
  /** Bound PVs whose volume the driver does not have. */
  readonly missing: readonly string[];
}

/** Finds violations: compares the driver's calls and volumes with the PVs of the API server and the
 * claims of the workload. */
export function judge(evidence: Evidence): Verdict {
  const { driverVolumes, volumes, claims } = evidence;
  const there = volumes.filter(({ isThere }) => isThere);
  const named = new Set(there.map(({ handle }) => handle));
  const had = new Set(driverVolumes.map(({ handle }) => handle));
  const history = readHistory(evidence);
  return {
    leaked: driverVolumes
      .filter((volume) => !named.has(volume.handle) && !isAwaited(volume, evidence))
      .map(
        (volume) => `${volume.handle} (${volume.name}): no PV names it${lossOf(volume, evidence)}`,
      ),
    lost: claims
      .filter(({ isBound, deleteSentMs }) => !isBound && deleteSentMs === undefined)
      .map(({ name, uid }) => `claim ${name} (${uid}) is not Bound`),
    double: [...overlaps(evidence.calls, history.nameOf), ...history.twins],
    remade: history.remade.filter(({ hadLoss }) => !hadLoss).map(({ line }) => line),
    wrong: wrongDeletes(evidence, history.nameOf),
    missing: there
      .filter(({ handle, phase }) => phase === 'Bound' && !had.has(handle))
      .map(
        ({ name, handle }) => `PV ${name} is Bound to ${handle}, which the driver does not have`,
      ),
  };
}

/** Volumes that were created again for a UID after Redis had lost a part of its record, one line
 * each. No violation: who remembers nothing of the deletion has to finish the creation. The second
 * volume must be deleted too, or it counts as leaked. */
export function findRemadeAfterLoss(evidence: Evidence): readonly string[] {
  const { remade } = readHistory(evidence);
  return remade.filter(({ hadLoss }) => hadLoss).map(({ line }) => line);
}

/** Whether an open record, or a claim that is still to become Bound, leads to the volume. */
function isAwaited({ name }: DriverVolume, { openRecords, claims }: Evidence): boolean {
  const pending = claims.filter(
    ({ isBound, deleteSentMs }) => !isBound && deleteSentMs === undefined,
  );
  return [...openRecords, ...pending.map(({ uid }) => uid)].some((id) => name.endsWith(id));
}

/** Names the failovers that lost something of the volume's record. */
function lossOf(volume: DriverVolume, { losses }: Evidence): string {
  return losses
    .filter((loss) => isHit(loss, volume))
    .map(
      ({ splitMs, killedMs }) => `; Redis lost what its record had from ${splitMs} to ${killedMs}`,
    )
    .join('');
}

/** Whether the failover lost a part of the volume's record, whose id ends the volume's name. */
function isHit({ records }: DataLoss, { name }: Pick<DriverVolume, 'name'>): boolean {
  return records.some((id) => name.endsWith(id));
}

interface Remade {
  readonly line: string;
  /** Whether Redis had lost a part of the record. */
  readonly hadLoss: boolean;
}

interface History {
  /** Name of each volume that was ever created, by handle. */
  readonly nameOf: ReadonlyMap<string, string>;
  readonly remade: readonly Remade[];
  /** Names with two volumes at once. */
  readonly twins: readonly string[];
}

function readHistory({ calls, losses }: Evidence): History {
  const nameOf = new Map<string, string>();
  const latest = new Map<string, string>();
  const deleted = new Set<string>();
  const remade: Remade[] = [];
  const twins: string[] = [];
  for (const event of calls) {
    if (event.event === 'deleted') deleted.add(event.handle);
    if (event.event !== 'made' || nameOf.has(event.handle)) continue;
    const previous = latest.get(event.volume);
    const line = `${event.volume}: ${event.handle} made at ${event.atMs}, after ${previous}`;
    if (previous !== undefined && deleted.has(previous))
      remade.push({
        line: `${line} had been deleted`,
        hadLoss: losses.some(
          (loss) => loss.killedMs < event.atMs && isHit(loss, { name: event.volume }),
        ),
      });
    else if (previous !== undefined) twins.push(`${line}, which was still there`);
    nameOf.set(event.handle, event.volume);
    latest.set(event.volume, event.handle);
  }
  return { nameOf, remade, twins };
}

function overlaps(calls: readonly CallEvent[], nameOf: History['nameOf']): readonly string[] {
  const found: string[] = [];
  /** Calls whose callers are still waiting. */
  const open = new Map<
    number,
    { readonly volume: string; readonly method: string; readonly atMs: number }
  >();
  for (const event of calls) {
    if (event.event === 'boot') open.clear();
    if (event.event === 'end' || event.event === 'cut') open.delete(event.call);
    if (event.event !== 'start') continue;
    const volume = nameOf.get(event.volume) ?? event.volume;
    for (const other of open.values()) {
      if (other.volume === volume)
        found.push(
          `${volume}: ${event.method} at ${event.atMs} ` +
            `while ${other.method} of ${other.atMs} was under way`,
        );
    }
    open.set(event.call, { volume, method: event.method, atMs: event.atMs });
  }
  return found;
}

function wrongDeletes(
  { calls, volumes, claims }: Evidence,
  nameOf: History['nameOf'],
): readonly string[] {
  const byHandle = new Map(volumes.map((volume) => [volume.handle, volume]));
  const byUid = new Map(claims.map((claim) => [claim.uid, claim]));
  return calls.flatMap((event) => {
    if (event.event !== 'start' || event.method !== 'DeleteVolume') return [];
    const volume = byHandle.get(event.volume);
    const name = nameOf.get(event.volume) ?? 'of unknown name';
    const line = `DeleteVolume ${event.volume} (${name}) at ${event.atMs}`;
    const claim = byUid.get(volume?.claimUid ?? '');
    if (claim !== undefined && event.atMs < (claim.deleteSentMs ?? Infinity))
      return [`${line}: claim ${claim.name} existed`];
    return volume?.wasReleased === false ? [`${line}: PV ${volume.name} was never Released`] : [];
  });
}

/** Whether there is no violation. */
export function isClean(verdict: Verdict): boolean {
  return Object.values(verdict).every((offenders: readonly string[]) => offenders.length === 0);
}
