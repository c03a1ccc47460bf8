import type { NodeSelectorTerm, VolumeSpec } from '../kube/objects.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import { type TopologyTerm, toTerm } from '../topology/term.ts';
import { isTerm } from './items.ts';

/* What runs of claims and volumes tell the leading ingest, so that it asks the driver again: a set
 * in Redis. */

/** What a creation or deletion may have changed: the values of a class, in all segments, or those
 * of a segment, for all classes, since classes may share a pool. */
export type CapacityHint = { readonly className: string } | { readonly segment: TopologyTerm };

/** What changed when a volume was created or deleted: the segments that its node affinity names,
 * or its class if it has none. `complaints`: why a term names no segment. Upstream:
 * external-provisioner pkg/capacity/provision.go refreshTopology. */
export function volumeHints(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): {
  readonly hints: readonly CapacityHint[];
  readonly complaints: readonly string[];
} {
  const terms = spec.nodeAffinity?.required?.nodeSelectorTerms;
  if (terms === undefined)
    return { hints: [{ className: spec.storageClassName ?? '' }], complaints: [] };
  const read = terms.map(segmentOfTerm);
  return {
    hints: read.flatMap((segment) => (typeof segment === 'string' ? [] : [{ segment }])),
    complaints: read.filter((segment) => typeof segment === 'string'),
  };
}

/** The segment that a term of a node affinity names, or why it names none. Upstream:
 * external-provisioner pkg/capacity/capacity.go termToSegment. */
export function segmentOfTerm(term: NodeSelectorTerm): TopologyTerm | string {
  if ((term.matchFields ?? []).length > 0) return 'it has matchFields';
  const labels: [string, string][] = [];
  for (const { key, operator, values = [] } of term.matchExpressions ?? []) {
    if (operator !== 'In') return `${key}: the operator is ${operator}, not In`;
    const [value] = values;
    if (value === undefined || values.length > 1)
      return `${key}: it has ${values.length} values, not one`;
    labels.push([key, value]);
  }
  return toTerm(Object.fromEntries(labels));
}

/** More are taken the next time. */
const MOST_TAKEN = 1_000;

/** Takes what the workers have told. A leader that dies right after it loses them; the next one
 * begins with all values. Rejects while Redis can't be reached. */
export async function takeHints(place: RedisPlace): Promise<readonly CapacityHint[]> {
  const texts = await place.redis.spop(driverKey(place, 'capacity-hints'), MOST_TAKEN);
  return texts.flatMap((text) => readHint(text) ?? []);
}

/** @returns undefined for a text that no worker wrote */
export function readHint(text: string): CapacityHint | undefined {
  const value = parseJson(text);
  if (!isFields(value)) return undefined;
  const { className, segment } = value;
  if (typeof className === 'string') return { className };
  return isTerm(segment) ? { segment } : undefined;
}

/** Tells the leading ingest that capacity may have changed. Never rejects and takes no time of the
 * run: a hint that is lost is made up for by the next poll. */
export interface CapacityHints {
  /** A creation failed, or its end is unknown. */
  creationFailed(className: string): void;
  /** The driver created or deleted this volume. */
  volumeChanged(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): void;
}

/** Without --enable-capacity. */
export const NO_CAPACITY_HINTS: CapacityHints = {
  creationFailed: () => undefined,
  volumeChanged: () => undefined,
};

/** The hints of one driver. */
export function openCapacityHints(place: RedisPlace, log: Logger): CapacityHints {
  const add = (hints: readonly CapacityHint[]): void => {
    if (hints.length === 0) return;
    const texts = hints.map((hint) => JSON.stringify(hint));
    place.redis
      .sadd(driverKey(place, 'capacity-hints'), ...texts)
      .catch((error: unknown) => log.debug({ err: error }, 'lost a hint about capacity'));
  };
  return {
    creationFailed: (className) => add([{ className }]),
    volumeChanged(spec) {
      const { hints, complaints } = volumeHints(spec);
      for (const reason of complaints)
        log.warn({ reason }, 'a term of a volume’s node affinity names no segment');
      add(hints);
    },
  };
}
