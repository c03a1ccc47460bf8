import { type PlanInput, planVolume, type VolumePlan } from '#src/volumes/plan.ts';
import { aClaim, aClass, options } from '../test/volumes/builders.ts';
import { withCapability } from '../test/volumes/plans.ts';
import {
  aCloningClaim,
  anApi,
  type ApiObjects,
  aRestoringClaim,
  cloneObjects,
  snapshotObjects,
} from '../test/volumes/source-builders.ts';

/** One kind of claim, and the objects that the plan asks for. They are in memory, because the bench
 * does not measure requests. */
export interface PlanningCase {
  readonly name: string;
  readonly input: PlanInput;
  readonly objects: ApiObjects;
}

const N = 'csi.storage.k8s.io/';
const PURPOSES = [
  'provisioner',
  'controller-publish',
  'node-stage',
  'node-publish',
  'controller-expand',
  'node-expand',
  'controller-modify',
];
const TEMPLATE = "${pvc.name}-${pvc.annotations['team']}";

function plain(change: Partial<PlanInput> = {}): PlanInput {
  const uid = '0f6b2b52-8b7b-4b7f-9a62-3f1c6f0a7d11';
  const full = { ...options, volumeNamePrefix: 'pvc', volumeNameUuidLength: -1 };
  return {
    claim: aClaim({ metadata: { uid } }),
    cls: aClass(),
    driver: withCapability(),
    options: full,
    ...change,
  };
}

function withSecrets(): PlanInput {
  const secrets = PURPOSES.flatMap((purpose) => [
    [`${N}${purpose}-secret-name`, TEMPLATE] as const,
    [`${N}${purpose}-secret-namespace`, '${pvc.namespace}'] as const,
  ]);
  const cls = aClass({
    parameters: { type: 'fast', [`${N}fstype`]: 'ext4', ...Object.fromEntries(secrets) },
  });
  const claim = aClaim({ metadata: { annotations: { team: 'blue' } } });
  return plain({ claim, cls, options: { ...plain().options, extraCreateMetadata: true } });
}

/** The cases that bench:planning measures. */
export const CASES: readonly PlanningCase[] = [
  { name: 'plain claim', input: plain(), objects: [] },
  { name: 'seven secrets by templates', input: withSecrets(), objects: [] },
  {
    name: 'restore of a snapshot',
    input: plain({ claim: aRestoringClaim(), driver: withCapability('CREATE_DELETE_SNAPSHOT') }),
    objects: snapshotObjects(),
  },
  {
    name: 'clone of a claim',
    input: plain({ claim: aCloningClaim(), driver: withCapability('CLONE_VOLUME') }),
    objects: cloneObjects(),
  },
];

/** Plans a case once. */
export function plan({ input, objects }: PlanningCase): Promise<VolumePlan> {
  return planVolume(anApi(objects), input);
}
