import { type PlanInput, planVolume, type VolumePlan } from '#src/volumes/plan.ts';
import type { Answer } from '#src/rules/rule.ts';
import { aClaim, aClass, options } from '../test/volumes/builders.ts';
import { withCapability } from '../test/volumes/plans.ts';
import {
  aCloningClaim,
  aContent,
  aRestoringClaim,
  aSnapshot,
  aSourceClaim,
  aSourceVolume,
} from '../test/volumes/source-builders.ts';

/** One kind of claim, and the API server's answers to what the plan asks for. They are in memory,
 * because the bench does not measure requests. */
export interface PlanningCase {
  readonly name: string;
  readonly input: PlanInput;
  readonly answers: readonly Answer[];
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
    className: 'class',
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
  { name: 'plain claim', input: plain(), answers: [] },
  { name: 'seven secrets by templates', input: withSecrets(), answers: [] },
  {
    name: 'restore of a snapshot',
    input: plain({ claim: aRestoringClaim(), driver: withCapability('CREATE_DELETE_SNAPSHOT') }),
    answers: [
      { kind: 'found', object: aSnapshot() },
      { kind: 'found', object: aContent() },
      { kind: 'finalizer-added' },
    ],
  },
  {
    name: 'clone of a claim',
    input: plain({ claim: aCloningClaim(), driver: withCapability('CLONE_VOLUME') }),
    answers: [
      { kind: 'found', object: aSourceClaim() },
      { kind: 'found', object: aSourceVolume() },
      { kind: 'finalizer-added' },
    ],
  },
];

/** Plans a case once.
 * @throws Error if the plan asks for more than the case has answers for */
export function plan({ name, input, answers }: PlanningCase): VolumePlan {
  const rule = planVolume(input);
  let turn = rule.next();
  for (const answer of answers) turn = rule.next(answer);
  if (turn.done !== true)
    throw new Error(`${name}: no answer to ${turn.value.kind} ${turn.value.resource.plural}`);
  return turn.value;
}
