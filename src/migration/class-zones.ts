import { BETA_ZONE, ZONE } from '../kube/keys.ts';
import type { Class, Labels, TopologySelectorTerm } from '../kube/objects.ts';
import { RefusedError } from '../rules/refused-error.ts';
import { indexByLowerCase, omitKeys } from './parameters.ts';

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
