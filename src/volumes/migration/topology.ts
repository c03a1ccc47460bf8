import { BETA_REGION, BETA_ZONE, REGION, ZONE } from '../../kube/keys.ts';
import type { NodeSelectorRequirement, NodeSelectorTerm } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import type { FoundRegion } from './regions.ts';
import { withDefaultLabel, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

/* Node affinity and labels of volumes, between the words of Kubernetes and those of a driver (spec
 * 07 §4). Of an expression only the key is looked at. */

/** Stands between the zones of a volume that has several in its label. */
export const ZONE_SEPARATOR = '__';

/** The names of zone and region, of one generation. */
export interface LabelPair {
  readonly zone: string;
  readonly region: string;
}

const GA: LabelPair = { zone: ZONE, region: REGION };
const BETA: LabelPair = { zone: BETA_ZONE, region: BETA_REGION };

/** The generation of labels that a volume uses: what its affinity says, then its labels, else the
 * current one. */
export function labelPairOf(volume: VolumeParts): LabelPair {
  const keys = new Set(
    termsOf(volume).flatMap((term) => expressionsOf(term).map(({ key }) => key)),
  );
  if (keys.has(GA.zone)) return GA;
  if (keys.has(BETA.zone)) return BETA;
  const labels = volume.metadata.labels ?? {};
  return labels[GA.zone] === undefined && labels[BETA.zone] !== undefined ? BETA : GA;
}

/** Every value that the affinity has under a key, sorted, each once. */
export function valuesOf(volume: VolumeParts, key: string): readonly string[] {
  return [...new Set(termsOf(volume).flatMap((term) => valuesIn(term, key)))].sort();
}

/** Changes a key of the affinity. Where the new key is there already, both stay. */
export function renameKey<V extends VolumeParts>(volume: V, from: string, to: string): V {
  if (termsOf(volume).length === 0) return volume;
  const rename = (expression: NodeSelectorRequirement) =>
    expression.key === from ? { ...expression, key: to } : expression;
  return withTerms(
    volume,
    termsOf(volume).map((term) =>
      term.matchExpressions === undefined
        ? term
        : { ...term, matchExpressions: term.matchExpressions.map(rename) },
    ),
  );
}

/** Demands one of some values in every term; no values demand nothing. */
export function addKey<V extends VolumeParts>(volume: V, key: string, given: readonly string[]): V {
  const values = [
    ...new Set(given.map((value) => value.trim()).filter((value) => value !== '')),
  ].sort();
  if (values.length === 0) return volume;
  const terms = termsOf(volume).length === 0 ? [{}] : termsOf(volume);
  return withTerms(
    volume,
    terms.map((term) => withExpression(term, { key, operator: 'In', values })),
  );
}

/** In-tree to CSI: zones by the driver's key, from the affinity, else from the zone label; beta
 * regions by their present name. Labels stay. */
export function toDriverTopology<V extends VolumeParts>(volume: V, zoneKey: string): V {
  const pair = labelPairOf(volume);
  const label = volume.metadata.labels?.[pair.zone];
  const zoned =
    valuesOf(volume, pair.zone).length > 0
      ? renameKey(volume, pair.zone, zoneKey)
      : addKey(volume, zoneKey, label?.split(ZONE_SEPARATOR) ?? []);
  const hasBetaRegion = pair === BETA && valuesOf(zoned, BETA.region).length > 0;
  return hasBetaRegion ? renameKey(zoned, BETA.region, GA.region) : zoned;
}

/** CSI to in-tree: zones by the label of Kubernetes, in affinity and labels; with them their
 * region, where the cloud's zones tell it.
 * @throws RefusedError where a term has no zones, or zones without a common region */
export function toLabelTopology<V extends VolumeParts>(
  volume: V,
  zoneKey: string,
  regionOf?: (zones: readonly string[]) => FoundRegion,
): V {
  const pair = labelPairOf(volume);
  const renamed = renameKey(volume, zoneKey, pair.zone);
  const regional = regionOf === undefined ? renamed : withRegions(renamed, pair, regionOf);
  const zones = valuesOf(regional, pair.zone);
  return zones.length === 0
    ? regional
    : withDefaultLabel(regional, pair.zone, zones.join(ZONE_SEPARATOR));
}

function withRegions<V extends VolumeParts>(
  volume: V,
  pair: LabelPair,
  regionOf: (zones: readonly string[]) => FoundRegion,
): V {
  if (termsOf(volume).length === 0) return volume;
  const terms = termsOf(volume).map((term) => {
    if (expressionsOf(term).some(({ key }) => key === pair.region)) return term;
    const found = regionOf(valuesIn(term, pair.zone));
    if ('problem' in found) {
      const text = `Failed to handle region topology. error: ${found.problem}`;
      throw new RefusedError(
        `failed to translate topology. PV:${volume.metadata.name}. Error:${text}`,
      );
    }
    return withExpression(term, { key: pair.region, operator: 'In', values: [found.region] });
  });
  const regional = withTerms(volume, terms);
  const [region, ...others] = valuesOf(regional, pair.region);
  return region === undefined || others.length > 0
    ? regional
    : withDefaultLabel(regional, pair.region, region);
}

function termsOf(volume: VolumeParts): readonly NodeSelectorTerm[] {
  return volume.spec.nodeAffinity?.required?.nodeSelectorTerms ?? [];
}

function expressionsOf(term: NodeSelectorTerm): readonly NodeSelectorRequirement[] {
  return term.matchExpressions ?? [];
}

function valuesIn(term: NodeSelectorTerm, key: string): readonly string[] {
  return expressionsOf(term).flatMap((expression) =>
    expression.key === key ? (expression.values ?? []) : [],
  );
}

function withExpression(
  term: NodeSelectorTerm,
  expression: NodeSelectorRequirement,
): NodeSelectorTerm {
  return { ...term, matchExpressions: [...expressionsOf(term), expression] };
}

function withTerms<V extends VolumeParts>(
  volume: V,
  nodeSelectorTerms: readonly NodeSelectorTerm[],
): V {
  const { nodeAffinity } = volume.spec;
  return withSpec(volume, {
    nodeAffinity: { ...nodeAffinity, required: { ...nodeAffinity?.required, nodeSelectorTerms } },
  });
}
