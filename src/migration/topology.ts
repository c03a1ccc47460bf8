import { BETA_REGION, BETA_ZONE, REGION, ZONE } from '../kube/keys.ts';
import type { NodeSelectorRequirement, NodeSelectorTerm } from '../kube/objects.ts';
import { prefixRefusal } from '../rules/refused-error.ts';
import { type VolumeParts, withDefaultLabel, withSpec } from './volume-parts.ts';

/* Translates the topology of volumes, in node affinity and labels, between Kubernetes' keys and
 * those of a driver. Expressions are matched by their key alone, whatever their operator. Upstream:
 * csi-translation-lib plugins/in_tree_volume.go. */

/** Separates the zones in the label of a volume with several. */
export const ZONE_SEPARATOR = '__';

/** Kubernetes' keys for zone and region: the current pair, and the beta pair before it. */
const GA = { zone: ZONE, region: REGION };
const BETA = { zone: BETA_ZONE, region: BETA_REGION };

/** The keys that a volume uses: those of its affinity, else those of its labels, else the current
 * pair. Upstream: getTopologyLabel. */
export function labelPairOf(volume: VolumeParts): typeof GA {
  const keys = termsOf(volume).flatMap((term) => expressionsOf(term).map(({ key }) => key));
  if (keys.includes(GA.zone)) return GA;
  if (keys.includes(BETA.zone)) return BETA;
  const labels = volume.metadata.labels ?? {};
  return labels[GA.zone] === undefined && labels[BETA.zone] !== undefined ? BETA : GA;
}

/** Every value that the affinity has for a key, sorted, each once. Upstream: getTopologyValues. */
export function valuesOf(volume: VolumeParts, key: string): readonly string[] {
  return [...new Set(termsOf(volume).flatMap((term) => valuesIn(term, key)))].sort();
}

/** Renames a key of the affinity. Expressions that already have the new key stay. Upstream:
 * replaceTopology. */
export function renameKey<V extends VolumeParts>(volume: V, from: string, to: string): V {
  const rename = (expression: NodeSelectorRequirement) =>
    expression.key === from ? { ...expression, key: to } : expression;
  const renameIn = (term: NodeSelectorTerm) =>
    term.matchExpressions === undefined
      ? term
      : { ...term, matchExpressions: term.matchExpressions.map(rename) };
  const terms = termsOf(volume);
  return terms.length === 0 ? volume : withTerms(volume, terms.map(renameIn));
}

/** Adds an expression to every term of the affinity; without values there is nothing to add.
 * Upstream: addTopology. */
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

/** In-tree to CSI: gives zones the driver's key, from the affinity or else from the zone label, and
 * beta regions their current key. Labels stay. Upstream: translateTopologyFromInTreeToCSI. */
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

/** CSI to in-tree: gives zones Kubernetes' key, in affinity and labels, and adds their region.
 * Upstream: translateTopologyFromCSIToInTree.
 * @param regionOf absent for a cloud whose zones do not tell their region
 * @throws RefusedError for a term without zones or with zones of several regions */
export function toLabelTopology<V extends VolumeParts>(
  volume: V,
  zoneKey: string,
  regionOf?: (zones: readonly string[]) => string,
): V {
  const pair = labelPairOf(volume);
  const renamed = renameKey(volume, zoneKey, pair.zone);
  const regional = regionOf === undefined ? renamed : withRegions(renamed, pair, regionOf);
  const zones = valuesOf(regional, pair.zone);
  return zones.length === 0
    ? regional
    : withDefaultLabel(regional, pair.zone, zones.join(ZONE_SEPARATOR));
}

/** Upstream: regionTopologyHandler. */
function withRegions<V extends VolumeParts>(
  volume: V,
  pair: typeof GA,
  regionOf: (zones: readonly string[]) => string,
): V {
  if (termsOf(volume).length === 0) return volume;
  const terms = termsOf(volume).map((term) => {
    if (expressionsOf(term).some(({ key }) => key === pair.region)) return term;
    const region = prefixRefusal(
      `failed to translate topology. PV:${volume.metadata.name}. ` +
        'Error:Failed to handle region topology. error',
      () => regionOf(valuesIn(term, pair.zone)),
    );
    return withExpression(term, { key: pair.region, operator: 'In', values: [region] });
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
