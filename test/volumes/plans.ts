import assert from 'node:assert/strict';
import { create, fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  CreateVolumeResponseSchema,
  type CreateVolumeRequest,
  type VolumeSchema,
} from '#src/csi/generated/csi_pb.ts';
import type { Claim, Class, NewVolume } from '#src/kube/objects.ts';
import { DEFAULT_GATES, type FeatureGates } from '#src/volumes/feature-gates.ts';
import {
  completeVolume,
  readAnswer,
  type BadAnswer,
  type VolumeSkeleton,
} from '#src/volumes/persistent-volume.ts';
import { planVolume, type VolumePlan } from '#src/volumes/plan.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import type { ProvisioningOptions } from '#src/volumes/provisioning-options.ts';
import { RefusedError } from '#src/volumes/refused-error.ts';
import { aClaim, aClass, driver, options } from './builders.ts';
import { run, type Run, type World } from './source-builders.ts';

/* Plans and volumes of the common fixture: 100 bytes for claim space/claim, UID testid. */

export interface Given {
  readonly claim?: Claim;
  readonly cls?: Class;
  readonly driver?: DriverFacts;
  readonly options?: Partial<ProvisioningOptions>;
  readonly gates?: Partial<FeatureGates>;
  /** What the API server holds besides. */
  readonly world?: World;
}

/** The rule, run over the world. */
export function planned(given: Given = {}): Run<VolumePlan> {
  const { claim = aClaim(), cls = aClass(), world = [] } = given;
  const changed = { ...options, ...given.options, gates: { ...DEFAULT_GATES, ...given.gates } };
  return run(
    planVolume({
      claim,
      cls,
      className: cls.metadata.name,
      driver: given.driver ?? driver,
      options: changed,
    }),
    world,
  );
}

export interface Created {
  readonly plan: Extract<VolumePlan, { kind: 'create' }>;
  /** What the driver is sent, but for secrets. */
  readonly request: CreateVolumeRequest;
  /** As the record has it: through JSON and back. */
  readonly skeleton: VolumeSkeleton;
}

/** The plan of a claim that can be served. */
export function created(given: Given = {}): Created {
  const { value: plan } = planned(given);
  assert.ok(plan?.kind === 'create', JSON.stringify(plan));
  return {
    plan,
    request: fromBinary(CreateVolumeRequestSchema, plan.request),
    skeleton: JSON.parse(JSON.stringify(plan.skeleton)) as VolumeSkeleton,
  };
}

/** Why a claim can't be served. */
export function refused(given: Given): Extract<VolumePlan, { kind: 'refuse' }> {
  const { value: plan } = planned(given);
  assert.ok(plan?.kind === 'refuse', `planned ${plan?.kind}`);
  return plan;
}

type VolumeInit = MessageInitShape<typeof VolumeSchema>;

/** The driver's answer as the rules read it; by default a volume of 100 bytes. */
export function answered(
  skeleton: VolumeSkeleton,
  volume: VolumeInit | undefined = {},
): ReturnType<typeof readAnswer> {
  return readAnswer(
    create(CreateVolumeResponseSchema, {
      volume: { volumeId: 'test-volume-id', capacityBytes: 100n, ...volume },
    }),
    skeleton,
  );
}

/** Why no PV can be made of an answer. */
export function blamed(skeleton: VolumeSkeleton, volume: VolumeInit): BadAnswer {
  const answer = answered(skeleton, volume);
  assert.ok('message' in answer, 'the answer is fine');
  return answer;
}

/** The PV of a claim once the driver has answered. */
export function volumeOf(given: Given = {}, volume: VolumeInit = {}): NewVolume {
  const { skeleton } = created(given);
  const answer = answered(skeleton, volume);
  assert.ok(!('message' in answer), JSON.stringify(answer));
  return completeVolume(skeleton, answer);
}

/** The driver with more capabilities of its controller. */
export function withCapability(...names: string[]): DriverFacts {
  return {
    ...driver,
    controllerCapabilities: new Set([...driver.controllerCapabilities, ...names]),
  };
}

/** The driver with topology. */
export const withTopology: DriverFacts = {
  ...driver,
  pluginCapabilities: new Set([...driver.pluginCapabilities, 'VOLUME_ACCESSIBILITY_CONSTRAINTS']),
};

/** A claim that asks for access modes. */
export function claimFor(...accessModes: string[]): Claim {
  return aClaim({ spec: { accessModes } });
}

/** A check for assert.throws: refused in these words. */
export function inWords(message: string | RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof RefusedError, String(error));
    if (typeof message === 'string') assert.equal(error.message, message);
    else assert.match(error.message, message);
    return true;
  };
}
