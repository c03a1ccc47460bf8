import type { NodeSelectorTerm, VolumeSpec } from '../kube/objects.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import type { Logger } from '../runtime/log.ts';
import { type TopologyTerm, toTerm } from '../topology/term.ts';

/* Hints of runs, a set in Redis. The leading ingest takes them, and asks the driver again. */

/** The hint of a failed creation: the values of a class, in all segments, may have changed. */
export function classHint(className: string): string {
  return JSON.stringify({ className });
}

/** The hint of a volume in a segment: the segment's values may have changed, for all classes,
 * because classes may share a pool. */
export function segmentHint(segment: TopologyTerm): string {
  return JSON.stringify({ segment });
}

/** The hints after a volume was created or deleted: the segments in its node affinity, or its class
 * without a node affinity. Upstream: external-provisioner pkg/capacity/provision.go
 * refreshTopology. */
export function volumeHints({
  nodeAffinity,
  storageClassName = '',
}: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): readonly string[] {
  const terms = nodeAffinity?.required?.nodeSelectorTerms;
  if (terms === undefined) return [classHint(storageClassName)];
  const segments = terms.map(segmentOfTerm).filter((segment) => segment !== undefined);
  return segments.map(segmentHint);
}

/** The segment that a term of a node affinity names: each label with one value. Upstream:
 * external-provisioner pkg/capacity/capacity.go termToSegment.
 * @returns undefined if the term names no segment */
export function segmentOfTerm(term: NodeSelectorTerm): TopologyTerm | undefined {
  if ((term.matchFields ?? []).length > 0) return undefined;
  const labels: [string, string][] = [];
  for (const { key, operator, values = [] } of term.matchExpressions ?? []) {
    const [value] = values;
    if (operator !== 'In' || value === undefined || values.length > 1) return undefined;
    labels.push([key, value]);
  }
  return toTerm(Object.fromEntries(labels));
}

/** Most hints that are taken at once. */
const MOST_TAKEN = 1_000;

/** Takes the workers' hints. If the leader then dies, they are lost, but the next leader refreshes
 * all values. Rejects while Redis can't be reached. */
export function takeHints(place: RedisPlace): Promise<readonly string[]> {
  return place.redis.spop(driverKey(place, 'capacity-hints'), MOST_TAKEN);
}

/** Sends the leading ingest hints about capacity. Never rejects, and the run does not wait. If a
 * hint is lost, the next poll finds the change. */
export class CapacityHints {
  readonly #place: RedisPlace | undefined;
  readonly #log: Logger;

  /** @param place  undefined without --enable-capacity: sends nothing */
  constructor(place: RedisPlace | undefined, log: Logger) {
    this.#place = place;
    this.#log = log;
  }

  /** To be called when a creation failed, or its end is unknown. */
  creationFailed(className: string): void {
    this.#add([classHint(className)]);
  }

  /** To be called when the driver has created or deleted this volume. */
  volumeChanged(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): void {
    if (this.#place === undefined) return;
    const hints = volumeHints(spec);
    const { nodeAffinity } = spec;
    if (hints.length < (nodeAffinity?.required?.nodeSelectorTerms.length ?? 0))
      this.#log.warn({ nodeAffinity }, 'a term of a volume’s node affinity names no segment');
    this.#add(hints);
  }

  #add(hints: readonly string[]): void {
    if (this.#place === undefined || hints.length === 0) return;
    this.#place.redis
      .sadd(driverKey(this.#place, 'capacity-hints'), ...hints)
      .catch((error: unknown) => this.#log.debug({ err: error }, 'lost a hint about capacity'));
  }
}
