import type { NodeSelectorTerm, VolumeSpec } from '../kube/objects.ts';
import { driverKey, type RedisPlace } from '../redis/key-prefix.ts';
import type { Logger } from '../runtime/log.ts';
import { type TopologyTerm, toTerm } from '../topology/term.ts';

/* What runs of claims and volumes tell the leading ingest, so that it asks the driver again: a set
 * of texts in Redis. */

/** What a failed creation may have changed: the values of a class, in all segments. */
export function classHint(className: string): string {
  return JSON.stringify({ className });
}

/** What a volume in a segment may have changed: the segment's values, for all classes, since
 * classes may share a pool. */
export function segmentHint(segment: TopologyTerm): string {
  return JSON.stringify({ segment });
}

/** What changed when a volume was created or deleted: the segments that its node affinity names,
 * or its class if it has none. Upstream: external-provisioner pkg/capacity/provision.go
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
 * @returns undefined if it names none */
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

/** More are taken the next time. */
const MOST_TAKEN = 1_000;

/** Takes what the workers have told. A leader that dies right after it loses them; the next one
 * begins with all values. Rejects while Redis can't be reached. */
export function takeHints(place: RedisPlace): Promise<readonly string[]> {
  return place.redis.spop(driverKey(place, 'capacity-hints'), MOST_TAKEN);
}

/** Tells the leading ingest that capacity may have changed. Never rejects and takes no time of the
 * run: a hint that is lost is made up for by the next poll. */
export class CapacityHints {
  readonly #place: RedisPlace | undefined;
  readonly #log: Logger;

  /** @param place  undefined without --enable-capacity: nothing is told */
  constructor(place: RedisPlace | undefined, log: Logger) {
    this.#place = place;
    this.#log = log;
  }

  /** A creation failed, or its end is unknown. */
  creationFailed(className: string): void {
    this.#add([classHint(className)]);
  }

  /** The driver created or deleted this volume. */
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
