import { memberAt, objectAt, textAt, textsAt } from '../api/json-value.ts';
import { classOf } from '../api/kinds/claims.ts';
import type { KubeObject } from '../api/kube-object.ts';
import { compareQuantities } from '../api/quantity.ts';
import { selectsLabels } from '../control/label-selector.ts';

const sizeOf = (volume: KubeObject) => textAt(volume, 'spec', 'capacity', 'storage');

/** Whether the volume's claimRef names this claim: by name, and by uid if it has one. */
export function refersTo(volume: KubeObject, claim: KubeObject): boolean {
  const reference = objectAt(volume, 'spec', 'claimRef');
  if (
    reference['name'] !== claim.metadata.name ||
    reference['namespace'] !== claim.metadata.namespace
  )
    return false;
  const uid = textAt(reference, 'uid');
  return uid === '' || uid === claim.metadata.uid;
}

/** Why a volume does not fit a claim (size, modes, attributes class); undefined where it does. */
export function mismatch(volume: KubeObject, claim: KubeObject): string | undefined {
  if (
    compareQuantities(sizeOf(volume), textAt(claim, 'spec', 'resources', 'requests', 'storage')) < 0
  )
    return 'requested PV is too small';
  if (modeOf(volume) !== modeOf(claim)) return 'incompatible volumeMode';
  const offered = textsAt(volume, 'spec', 'accessModes');
  if (!textsAt(claim, 'spec', 'accessModes').every((mode) => offered.includes(mode)))
    return 'incompatible accessMode';
  const attributes = (object: KubeObject) => textAt(object, 'spec', 'volumeAttributesClassName');
  if (attributes(volume) !== attributes(claim)) return 'volumeAttributesClassName does not match';
  return undefined;
}

/** The smallest of these volumes that is free and fits. */
export function bestMatch(
  claim: KubeObject,
  volumes: Iterable<KubeObject>,
): KubeObject | undefined {
  let best: KubeObject | undefined;
  for (const volume of volumes) {
    if (!isFree(volume) || (classOf(volume) ?? '') !== (classOf(claim) ?? '')) continue;
    if (
      mismatch(volume, claim) !== undefined ||
      !selectsLabels(memberAt(claim, 'spec', 'selector'), volume.metadata.labels ?? {})
    )
      continue;
    if (best === undefined || compareQuantities(sizeOf(volume), sizeOf(best)) < 0) best = volume;
  }
  return best;
}

function isFree(volume: KubeObject): boolean {
  return (
    textAt(volume, 'status', 'phase') === 'Available' &&
    volume.metadata.deletionTimestamp === undefined
  );
}

function modeOf(object: KubeObject): string {
  return textAt(object, 'spec', 'volumeMode') || 'Filesystem';
}
