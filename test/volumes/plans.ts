import assert from 'node:assert/strict';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  type CreateVolumeRequest,
  CreateVolumeResponseSchema,
  type VolumeSchema,
} from '#src/csi/generated/csi_pb.ts';
import type { Claim, Class, NewVolume } from '#src/kube/objects.ts';
import { DEFAULT_GATES, type FeatureGates, type ProvisioningOptions } from '#src/volumes/flags.ts';
import { type BadAnswer, type PlannedRequest, readAnswer } from '#src/volumes/persistent-volume.ts';
import { planVolume, type VolumePlan } from '#src/volumes/plan.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { RefusedError } from '#src/rules/rule.ts';
import type { ClusterTopology } from '#src/topology/cluster-topology.ts';
import type { TopologyRequirement } from '#src/topology/requirement.ts';
import { aClaim, aClass, driver, options } from './builders.ts';
import { type ApiObjects, type Run, run } from './source-builders.ts';
import { aCluster } from '../topology/fake-cluster.ts';

/* Plans and volumes for the fixture of builders.ts: 100 bytes for claim space/claim, UID testid. */

export interface Given {
  readonly claim?: Claim;
  readonly cls?: Class;
  readonly driver?: DriverFacts;
  readonly options?: Partial<ProvisioningOptions>;
  readonly gates?: Partial<FeatureGates>;
  /** Absent: a cluster without nodes. */
  readonly topology?: ClusterTopology | undefined;
  /** Objects that the API server has besides. */
  readonly objects?: ApiObjects;
  /** That an earlier call has asked for. */
  readonly place?: TopologyRequirement;
}

/** Runs the plan over objects in memory. */
export async function runPlan(given: Given = {}): Promise<Promise<Run<VolumePlan>>> {
  const { claim = aClaim(), cls = aClass(), objects = [] } = given;
  const changed = { ...options, ...given.options, gates: { ...DEFAULT_GATES, ...given.gates } };
  const input = {
    claim,
    cls,
    driver: given.driver ?? driver,
    options: changed,
    topology: given.topology ?? aCluster(),
    place: given.place,
  };
  return await run((api) => planVolume(api, input), objects);
}

export interface Created {
  readonly plan: Extract<VolumePlan, { kind: 'create' }>;
  /** The request to the driver, without secrets. */
  readonly request: CreateVolumeRequest;
}

/** The plan for a claim that can be served. */
export async function planCreation(given: Given = {}): Promise<Created> {
  const { value: plan } = await runPlan(given);
  assert.ok(plan?.kind === 'create', `planned ${plan?.kind}`);
  return { plan, request: plan.request };
}

/** The refusal of a claim that can't be served. */
export async function planRefusal(given: Given): Promise<Extract<VolumePlan, { kind: 'refuse' }>> {
  const { value: plan } = await runPlan(given);
  assert.ok(plan?.kind === 'refuse', `planned ${plan?.kind}`);
  return plan;
}

type VolumeInit = MessageInitShape<typeof VolumeSchema>;

/** The driver's answer as readAnswer returns it; by default a volume of 100 bytes. */
export function readDriverAnswer(
  planned: PlannedRequest,
  volume: VolumeInit | undefined = {},
): ReturnType<typeof readAnswer> {
  return readAnswer(
    create(CreateVolumeResponseSchema, {
      volume: { volumeId: 'test-volume-id', capacityBytes: 100n, ...volume },
    }),
    planned,
  );
}

/** What is wrong with an answer from which no PV can be made. */
export function readBadAnswer(planned: PlannedRequest, volume: VolumeInit): BadAnswer {
  const answer = readDriverAnswer(planned, volume);
  assert.ok('message' in answer, 'the answer can be used');
  return answer;
}

/** The PV of a claim once the driver has answered. */
export async function completePv(given: Given = {}, volume: VolumeInit = {}): Promise<NewVolume> {
  const { plan } = await planCreation(given);
  const answer = readDriverAnswer(plan, volume);
  assert.ok(!('message' in answer));
  return answer.volume;
}

/** The driver with further controller capabilities. */
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

/** A claim with these access modes. */
export function claimFor(...accessModes: string[]): Claim {
  return aClaim({ spec: { accessModes } });
}

/** A check for assert.throws: a refusal with this message. */
export function hasMessage(message: string | RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof RefusedError, String(error));
    if (typeof message === 'string') assert.equal(error.message, message);
    else assert.match(error.message, message);
    return true;
  };
}
