import { BETA_REGION, BETA_ZONE, REGION, ZONE } from '../kube/keys.ts';
import type {
  Class,
  Labels,
  NodeSelectorRequirement,
  NodeSelectorTerm,
  TopologySelectorTerm,
} from '../kube/objects.ts';
import { prefixRefusal, RefusedError } from '../rules/rule.ts';
import {
  indexByLowerCase,
  omitKeys,
  type VolumeParts,
  withDefaultLabel,
} from './in-tree-plugin.ts';

/* Translates the topology of new volumes, in node affinity and labels, from a driver's keys to
 * Kubernetes' keys. Matches expressions by their key, whatever their operator. Upstream:
 * csi-translation-lib plugins/in_tree_volume.go. */

/** Separates the zones in the label of a volume with several. */
export const ZONE_SEPARATOR = '__';

/** Kubernetes' keys for zone and region: the current pair, and the beta pair before it. */
const GA = { zone: ZONE, region: REGION };
const BETA = { zone: BETA_ZONE, region: BETA_REGION };

/** The pair of keys that a volume uses: in its affinity, else in its labels, else the current pair.
 * Upstream: getTopologyLabel. */
export function labelPairOf(volume: VolumeParts): typeof GA {
  const keys = termsOf(volume).flatMap((term) => expressionsOf(term).map(({ key }) => key));
  if (keys.includes(GA.zone)) return GA;
  if (keys.includes(BETA.zone)) return BETA;
  const labels = volume.metadata.labels ?? {};
  return labels[GA.zone] === undefined && labels[BETA.zone] !== undefined ? BETA : GA;
}

/** The distinct values that the affinity has for a key, sorted. Upstream: getTopologyValues. */
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

/** CSI to in-tree: gives zones Kubernetes' key, in affinity and labels, and adds their region.
 * Upstream: translateTopologyFromCSIToInTree.
 * @param regionOf  absent for a cloud whose zones do not name their region
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
  const required = { ...nodeAffinity?.required, nodeSelectorTerms };
  return { ...volume, spec: { ...volume.spec, nodeAffinity: { ...nodeAffinity, required } } };
}

type Expression = NonNullable<TopologySelectorTerm['matchLabelExpressions']>[number];

/** Turns the class parameters `zone` and `zones` into allowed topologies. A class with neither
 * keeps its own allowed topologies, with the driver's key for zones.
 * @param zoneKey the driver's topology key
 * @throws RefusedError for a class that has zones and allowed topologies */
export function translateZones(cls: Class, zoneKey: string): Class {
  const values = zonesOf(cls.parameters);
  const changed = { ...cls, parameters: omitKeys(cls.parameters, 'zone', 'zones') };
  if (values === undefined) return renameZoneKeys(changed, zoneKey);
  if ((cls.allowedTopologies ?? []).length > 0)
    throw new RefusedError(
      'cannot simultaneously set allowed topologies and zone/zones parameters',
    );
  return { ...changed, allowedTopologies: [{ matchLabelExpressions: [{ key: zoneKey, values }] }] };
}

/** If both are set, upstream takes one of them at random; sutler always takes `zones`. */
function zonesOf(parameters: Labels | undefined): readonly string[] | undefined {
  const given = indexByLowerCase(parameters);
  const zone = given.get('zone');
  return given.get('zones')?.split(',') ?? (zone === undefined ? undefined : [zone]);
}

/** Replaces Kubernetes' keys for zones by the driver's in the allowed topologies. Upstream:
 * csi-translation-lib plugins/in_tree_volume.go translateAllowedTopologies. */
export function renameZoneKeys(cls: Class, zoneKey: string): Class {
  return mapExpressions(cls, (expression) =>
    expression.key === ZONE || expression.key === BETA_ZONE
      ? { ...expression, key: zoneKey }
      : expression,
  );
}

/** Changes each expression of the allowed topologies; a class without any stays as it is. */
export function mapExpressions(cls: Class, change: (expression: Expression) => Expression): Class {
  if (cls.allowedTopologies === undefined) return cls;
  const allowedTopologies = cls.allowedTopologies.map((term) =>
    term.matchLabelExpressions === undefined
      ? term
      : { ...term, matchLabelExpressions: term.matchLabelExpressions.map(change) },
  );
  return { ...cls, allowedTopologies };
}

/** The region that GCE zones share: `us-east1-b` is in us-east1. Upstream: csi-translation-lib
 * plugins/gce_pd.go gceGetRegionFromZones.
 * @throws RefusedError for an unreadable zone, no zone, and several regions */
export function gceRegion(zones: readonly string[]): string {
  return toSingleRegion(zones.map(parseGceZone));
}

function parseGceZone(zone: string): string {
  const parts = zone.split('-');
  if (parts.length === 3) return parts.slice(0, 2).join('-');
  const format = '{locale}-{region}-{zone}';
  throw new RefusedError(`zone in unexpected format, expected: ${format}, got: ${zone}`);
}

/** The region that AWS zones share: `us-west-2a` and the local zone `us-west-2-lax-1a` are in
 * us-west-2. Upstream: csi-translation-lib plugins/aws_ebs.go getAwsRegionFromZones.
 * @throws RefusedError for an unreadable zone, no zone, and several regions */
export function awsRegion(zones: readonly string[]): string {
  return toSingleRegion(zones.map(parseAwsZone));
}

function parseAwsZone(zone: string): string {
  const parts = zone.split('-');
  const isPlain = parts.length === 3 || parts.length === 4;
  if (isPlain && parts.at(-1)?.length === 2) return zone.slice(0, -1);
  // Five parts are a local zone, seven a wavelength zone.
  if (parts.length === 5 || parts.length === 7) return parts.slice(0, 3).join('-');
  throw new RefusedError(`Unexpected zone format: ${zone} is not a valid AWS zone`);
}

function toSingleRegion(regions: readonly string[]): string {
  const [region, ...others] = [...new Set(regions)].sort();
  if (region === undefined) throw new RefusedError('no zones specified');
  if (others.length === 0) return region;
  const all = [region, ...others].join(', ');
  throw new RefusedError(`multiple or no regions gotten from zones, got: ${all}`);
}
