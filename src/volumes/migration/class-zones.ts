import { BETA_ZONE, ZONE } from '../../kube/keys.ts';
import type { Class, Labels, TopologySelectorTerm } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { byLowerCase, without } from './parameters.ts';

type Expression = NonNullable<TopologySelectorTerm['matchLabelExpressions']>[number];

/** A class whose parameters `zone` and `zones` are gone and have become allowed topologies; where
 * it has neither, its own allowed topologies speak the driver's language (spec 07 §3).
 * @param zoneKey the driver's
 * @throws RefusedError for a class that has both */
export function zonesToTopologies(cls: Class, zoneKey: string): Class {
  const values = zonesOf(cls.parameters);
  const changed = { ...cls, parameters: without(cls.parameters, ['zone', 'zones']) };
  if (values === undefined) return renameZoneKeys(changed, zoneKey);
  if ((cls.allowedTopologies ?? []).length > 0) {
    throw new RefusedError(
      'cannot simultaneously set allowed topologies and zone/zones parameters',
    );
  }
  return { ...changed, allowedTopologies: [{ matchLabelExpressions: [{ key: zoneKey, values }] }] };
}

/** Where both are there, upstream takes either by chance. We always take `zones`. */
function zonesOf(parameters: Labels | undefined): readonly string[] | undefined {
  const given = byLowerCase(parameters);
  const zone = given.get('zone');
  return given.get('zones')?.split(',') ?? (zone === undefined ? undefined : [zone]);
}

/** A class whose allowed topologies name zones by the driver's key. */
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
