import type { CallEvent } from './call-log.ts';

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
}

/** The violations that were found, one line each. All lists must be empty. */
export interface Verdict {
  /** Volumes that no PV names. */
  readonly leaked: readonly string[];
  /** Claims that should be Bound and are not. */
  readonly lost: readonly string[];
  /** Two volumes for one claim at once. */
  readonly twice: readonly string[];
  /** DeleteVolume calls for volumes whose claim existed or whose PV was never Released. */
  readonly wrong: readonly string[];
  /** Bound PVs whose volume the driver does not have. */
  readonly missing: readonly string[];
}

/** Finds violations: compares the driver's calls and volumes with the PVs of the API server and the
 * claims of the workload. To be called when no work is outstanding. */
export function judge(evidence: Evidence): Verdict {
  const { driverVolumes, volumes, claims } = evidence;
  const there = volumes.filter(({ isThere }) => isThere);
  const named = new Set(there.map(({ handle }) => handle));
  const had = new Set(driverVolumes.map(({ handle }) => handle));
  const history = readHistory(evidence);
  return {
    leaked: driverVolumes
      .filter(({ handle }) => !named.has(handle))
      .map(({ handle, name }) => `${handle} (${name}): no PV names it`),
    lost: claims
      .filter(({ isBound, deleteSentMs }) => !isBound && deleteSentMs === undefined)
      .map(({ name, uid }) => `claim ${name} (${uid}) is not Bound`),
    twice: history.twins,
    wrong: wrongDeletes(evidence, history.nameOf),
    missing: there
      .filter(({ handle, phase }) => phase === 'Bound' && !had.has(handle))
      .map(
        ({ name, handle }) => `PV ${name} is Bound to ${handle}, which the driver does not have`,
      ),
  };
}

/** Volumes that were created again after their deletion, one line each. No violation: a run that
 * knows only that a call was begun has to finish it. The second volume must be deleted too, or it
 * counts as leaked. */
export function findRemade(evidence: Evidence): readonly string[] {
  return readHistory(evidence).remade;
}

interface History {
  /** Name of each volume that was ever created, by handle. */
  readonly nameOf: ReadonlyMap<string, string>;
  readonly remade: readonly string[];
  /** Names with two volumes at once. */
  readonly twins: readonly string[];
}

function readHistory({ calls }: Evidence): History {
  const nameOf = new Map<string, string>();
  const latest = new Map<string, string>();
  const deleted = new Set<string>();
  const remade: string[] = [];
  const twins: string[] = [];
  for (const event of calls) {
    if (event.event === 'deleted') deleted.add(event.handle);
    if (event.event !== 'made' || nameOf.has(event.handle)) continue;
    const previous = latest.get(event.volume);
    const line = `${event.volume}: ${event.handle} made at ${event.atMs}, after ${previous}`;
    if (previous !== undefined && deleted.has(previous)) remade.push(`${line} had been deleted`);
    else if (previous !== undefined) twins.push(`${line}, which was still there`);
    nameOf.set(event.handle, event.volume);
    latest.set(event.volume, event.handle);
  }
  return { nameOf, remade, twins };
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
