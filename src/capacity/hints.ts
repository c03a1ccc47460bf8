import type { Redis } from 'ioredis';
import type { NodeSelectorTerm, VolumeSpec } from '../kube/objects.ts';
import type { redisFlags } from '../redis/flags.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { defineNamedScript } from '../redis/named-script.ts';
import type { Flags } from '../runtime/flags.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import type { Logger } from '../runtime/log.ts';
import { type TopologyTerm, toTerm } from '../topology/term.ts';
import type { capacityFlags, capacityWorkFlags } from './flags.ts';
import { isTerm } from './items.ts';
import type { VolumeRequest } from '../volumes/persistent-volume.ts';
import { forgetCreation, itemOfRequest, noteCreation } from './requested-bytes.ts';

/* The hints that runs of claims and volumes leave for the leading ingest, so that it has a class or
 * a segment refreshed: jobs add no keys to queues. Redis keeps them in a hash whose fields are the
 * hints, so that equal ones are one. */

/** What a creation or deletion may have changed: the values of a class, in all segments, or those
 * of a segment, for all classes, since classes may share a pool. */
export type CapacityHint =
  | { readonly kind: 'class'; readonly className: string }
  | { readonly kind: 'segment'; readonly segment: TopologyTerm };

/** What changed when a volume was created or deleted: the segments that its node affinity names,
 * or its class if it has none. `complaints`: why a term names no segment. Upstream:
 * external-provisioner pkg/capacity/provision.go refreshTopology. */
export function volumeHints(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): {
  readonly hints: readonly CapacityHint[];
  readonly complaints: readonly string[];
} {
  const terms = spec.nodeAffinity?.required?.nodeSelectorTerms;
  if (terms === undefined)
    return { hints: [{ kind: 'class', className: spec.storageClassName ?? '' }], complaints: [] };
  const read = terms.map(segmentOfTerm);
  return {
    hints: read.flatMap((segment) =>
      typeof segment === 'string' ? [] : [{ kind: 'segment', segment }],
    ),
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

/** A hint as it is stored; equal hints have equal texts. */
export function encodeHint(hint: CapacityHint): string {
  return JSON.stringify(hint.kind === 'class' ? { class: hint.className } : [hint.segment]);
}

/** @returns undefined for a text that encodeHint did not write */
export function decodeHint(text: string): CapacityHint | undefined {
  const value = parseJson(text);
  if (isFields(value)) {
    const { class: className } = value;
    return typeof className === 'string' ? { kind: 'class', className } : undefined;
  }
  const segment: unknown = Array.isArray(value) ? value[0] : undefined;
  return isTerm(segment) ? { kind: 'segment', segment } : undefined;
}

const takeScript = defineNamedScript({
  keys: ['hints'],
  args: {},
  answers: { hints: { texts: 'list' } },
  lua: `
local texts = redis.call('HKEYS', hints)
if #texts > 0 then redis.call('DEL', hints) end
return {'hints', 'texts', texts}
`,
});

export type HintStore = ReturnType<typeof redisHintStore>;

/** The hints of one driver. Both methods reject while Redis can't be reached. */
export function redisHintStore(redis: Redis, prefix: string, driver: string) {
  const hints = `${keyPrefix(prefix)}:capacity-hints:${driver}`;
  return {
    async add(added: readonly CapacityHint[]): Promise<void> {
      if (added.length === 0) return;
      await redis.hset(hints, new Map(added.map((hint) => [encodeHint(hint), '1'])));
    },
    /** Takes all hints. A leader that dies right after it loses them; the next one begins with all
     * values. */
    async take(): Promise<readonly CapacityHint[]> {
      const { texts } = await takeScript.run(redis, { hints }, {});
      return texts.flatMap((text) => decodeHint(text) ?? []);
    },
  };
}

/** Tells the leading ingest that capacity may have changed. Never rejects and takes no time of the
 * run: a hint that is lost is made up for by the next poll. */
export interface CapacityHints {
  /** A creation is about to be sent. */
  creationBegins(planned: VolumeRequest): void;
  /** A creation failed, or its end is unknown. */
  creationFailed(planned: VolumeRequest): void;
  /** A creation has given a volume. */
  creationEnded(planned: VolumeRequest): void;
  /** The driver created or deleted this volume. */
  volumeChanged(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): void;
}

/** Without --enable-capacity. */
export const NO_CAPACITY_HINTS: CapacityHints = {
  creationBegins: () => undefined,
  creationFailed: () => undefined,
  creationEnded: () => undefined,
  volumeChanged: () => undefined,
};

/** The hints that runs of one driver leave in Redis; none without --enable-capacity. */
export function openCapacityHints(
  flags: Flags<typeof capacityFlags & typeof capacityWorkFlags & typeof redisFlags>,
  redis: Redis,
  { driver, log }: { readonly driver: string; readonly log: Logger },
): CapacityHints {
  if (!flags.enableCapacity) return NO_CAPACITY_HINTS;
  const store = redisHintStore(redis, flags.redisPrefix, driver);
  const place = { redis, prefix: flags.redisPrefix, driver };
  const quietly = (sent: Promise<void>): void =>
    void sent.catch((error: unknown) => log.debug({ err: error }, 'lost a hint about capacity'));
  const add = (hints: readonly CapacityHint[]): void => quietly(store.add(hints));
  return {
    creationBegins(planned) {
      // With that flag, the beginning of a creation changes what is published.
      if (!flags.capacityMinusInFlight) return;
      const hint = { kind: 'segment', segment: itemOfRequest(planned).segment } as const;
      quietly(noteCreation(place, planned, Date.now()).then(() => add([hint])));
    },
    creationEnded(planned) {
      if (flags.capacityMinusInFlight) quietly(forgetCreation(place, planned));
    },
    creationFailed(planned) {
      const { pvTemplate } = planned;
      if (flags.capacityMinusInFlight) quietly(forgetCreation(place, planned));
      add([{ kind: 'class', className: pvTemplate.volume.spec.storageClassName ?? '' }]);
    },
    volumeChanged(spec) {
      const { hints, complaints } = volumeHints(spec);
      for (const reason of complaints)
        log.warn({ reason }, 'a term of a volume’s node affinity names no segment');
      add(hints);
    },
  };
}
