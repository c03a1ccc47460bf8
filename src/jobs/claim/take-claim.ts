import { CsiError } from '../../csi/status.ts';
import { SELECTED_NODE } from '../../kube/keys.ts';
import { isConflict } from '../../kube/kube-error.ts';
import type { Claim, Class } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import { catchRefusal, type RefusedError } from '../../rules/rule.ts';
import { topologyRequirement } from '../../topology/requirement.ts';
import type { VolumeRequest } from '../../volumes/persistent-volume.ts';
import type { Dependencies } from '../dependencies.ts';
import { parkOrRetry, whyNodesAreUnknown } from '../outcomes.ts';
import type { Intent } from './plan-claim.ts';

/** A claim without a selected node that may be bound at once. */
interface FreeClaim {
  readonly claim: Claim;
  readonly cls: Class;
}

/** In a process that serves one node: writes that node to the claim, if the class allows it and it
 * has room. The job that the claim gets then creates the volume. Else the claim waits in silence,
 * since another node may take it. Upstream: external-provisioner pkg/controller/controller.go
 * checkNode, becomeOwner.
 * @param plan  plans the volume of the claim with its node
 * @throws KubeError */
export async function takeClaim(
  deps: Dependencies,
  node: string,
  free: FreeClaim,
  plan: (claim: Claim) => Promise<Intent>,
): Promise<Intent> {
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return { kind: 'wait', outcome: unknown };
  const place = findPlace(deps, node, free);
  if (place instanceof Error) {
    const outcome = parkOrRetry(place.message, place.waitsFor);
    return { kind: 'wait', outcome };
  }
  const taken = withSelectedNode(free.claim, node);
  const planned = await plan(taken);
  // The node that takes the claim tells the user why it can't be planned.
  const reason =
    planned.kind === 'create' ? await whyNoRoom(deps, planned.planned, place) : undefined;
  if (reason !== undefined)
    return { kind: 'wait', outcome: { kind: 'retry', reason: `node ${node}: ${reason}` } };
  return writeClaim(deps, node, taken);
}

/** The node's part of the cluster, as the driver is asked about it; undefined for a driver without
 * topology, and an error if the class does not allow the node. */
function findPlace(
  { cluster }: Dependencies,
  selectedNode: string,
  { claim, cls }: FreeClaim,
): Readonly<Record<string, string>> | undefined | RefusedError {
  const topology = cluster.topology();
  if (topology === undefined) return undefined;
  const input = { claimName: claim.metadata.name, cls, selectedNode, topology };
  return catchRefusal<Readonly<Record<string, string>> | undefined | RefusedError>(
    () =>
      topologyRequirement({ ...input, strictTopology: true, immediateTopology: false })
        ?.requisite[0]?.segments,
    (refusal) => refusal,
  );
}

/** Why the node has no room for a volume; undefined if it has, or only the attempt can tell. */
async function whyNoRoom(
  { driver }: Dependencies,
  { request, volume }: VolumeRequest,
  segments: Readonly<Record<string, string>> | undefined,
): Promise<string | undefined> {
  const { storageClassName = '' } = volume.spec;
  const { capacityRange, volumeCapabilities, parameters } = request;
  const bytes = capacityRange?.requiredBytes ?? 0n;
  if (driver.refusedSizes.includes(storageClassName, bytes))
    return `the driver has just refused ${bytes} bytes for want of room`;
  if (bytes === 0n || !driver.facts().controllerCapabilities.has('GET_CAPACITY')) return undefined;
  const question = {
    volumeCapabilities,
    parameters,
    ...(segments === undefined ? {} : { accessibleTopology: { segments: { ...segments } } }),
  };
  const settings = { timeoutMs: driver.timeoutMs, gateway: driver.endpoint };
  try {
    const { availableCapacity } = await driver.csi.getCapacity(question, settings);
    return availableCapacity >= bytes
      ? undefined
      : `no room for ${bytes} bytes; the driver has ${availableCapacity}`;
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    // As upstream: an error of the driver here does not keep the node from trying.
    return error.driverSaid ? undefined : error.message;
  }
}

function withSelectedNode(claim: Claim, node: string): Claim {
  const { metadata } = claim;
  const annotations = { ...metadata.annotations, [SELECTED_NODE]: node };
  return { ...claim, metadata: { ...metadata, annotations } };
}

/** Whoever else selected a node meanwhile wins. */
async function writeClaim(
  { cluster, reports }: Dependencies,
  node: string,
  claim: Claim,
): Promise<Intent> {
  const { namespace = '', name } = claim.metadata;
  try {
    await cluster.kube.update<Claim>(claims, { namespace, name }, claim);
  } catch (error) {
    if (!isConflict(error)) throw error;
    const reason = 'the claim has changed meanwhile';
    return { kind: 'wait', outcome: { kind: 'later', reason, delayMs: 0 } };
  }
  const note = `node ${node} is selected for the claim`;
  reports.log.debug({ claim: `${namespace}/${name}`, node }, note);
  return { kind: 'wait', outcome: { kind: 'done', note, needsNode: true } };
}
