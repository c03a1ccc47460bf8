import { CsiError } from '../../csi/status.ts';
import { SELECTED_NODE } from '../../kube/keys.ts';
import { isConflict } from '../../kube/kube-error.ts';
import type { Claim, Class } from '../../kube/objects.ts';
import { claims } from '../../kube/resources.ts';
import { catchRefusal, type RefusedError } from '../../rules/rule.ts';
import type { Clock } from '../../runtime/clock.ts';
import { topologyRequirement } from '../../topology/requirement.ts';
import type { PlannedRequest } from '../../volumes/persistent-volume.ts';
import type { Dependencies } from '../dependencies.ts';
import { parkOrRetry, whyNodesAreUnknown } from '../outcomes.ts';
import type { Intent } from './plan-claim.ts';

/** A claim without a selected node that may be bound at once. */
interface FreeClaim {
  readonly claim: Claim;
  readonly cls: Class;
}

/** In a process that serves one node: writes that node to the claim, if the class allows the node
 * and the node has room. The claim's next job then creates the volume. Otherwise the claim waits
 * without an event, since another node may take it. Upstream: external-provisioner
 * pkg/controller/controller.go checkNode, becomeOwner.
 * @param plan  plans the volume of the claim with its node
 * @throws KubeError */
export async function takeClaim(
  deps: Dependencies,
  node: string,
  free: FreeClaim,
  plan: (claim: Claim) => Promise<Intent>,
): Promise<Intent> {
  const unknown = whyNodesAreUnknown(deps);
  if (unknown !== undefined) return { kind: 'end', outcome: unknown };
  const place = findPlace(deps, node, free);
  if (place instanceof Error)
    return { kind: 'end', outcome: parkOrRetry(place.message, place.waitsFor) };
  const taken = withSelectedNode(free.claim, node);
  const intent = await plan(taken);
  // If planning refuses, the node takes the claim too: the next run tells the user why.
  const reason =
    intent.kind === 'create' ? await whyNoRoom(deps, intent.planned, place) : undefined;
  if (reason !== undefined)
    return { kind: 'end', outcome: { kind: 'retry', reason: `node ${node}: ${reason}` } };
  return writeClaim(deps, node, taken);
}

/** The node's segment; undefined for a driver without topology. An error if the class does not
 * allow the node. */
function findPlace(
  deps: Dependencies,
  selectedNode: string,
  { claim, cls }: FreeClaim,
): Readonly<Record<string, string>> | undefined | RefusedError {
  const topology = deps.topology();
  if (topology === undefined) return undefined;
  const input = { claimName: claim.metadata.name, cls, selectedNode, topology };
  return catchRefusal<Readonly<Record<string, string>> | undefined | RefusedError>(
    () =>
      topologyRequirement({ ...input, strictTopology: true, immediateTopology: false })
        ?.requisite[0]?.segments,
    (refusal) => refusal,
  );
}

/** Why the node has no room; undefined if it has room, or if only an attempt can tell. */
async function whyNoRoom(
  { csi, endpoint: gateway, facts, refusedSizes, timeoutMs }: Dependencies,
  { request, requestedBytes: bytes, volume }: PlannedRequest,
  segments: Readonly<Record<string, string>> | undefined,
): Promise<string | undefined> {
  if (refusedSizes.includes(volume.spec.storageClassName ?? '', bytes))
    return `the driver refused ${bytes} bytes in the last 30 s, because it has no room`;
  if (bytes === 0n || !facts().controllerCapabilities.has('GET_CAPACITY')) return undefined;
  const { volumeCapabilities, parameters } = request;
  const question = {
    volumeCapabilities,
    parameters,
    ...(segments === undefined ? {} : { accessibleTopology: { segments: { ...segments } } }),
  };
  try {
    const { availableCapacity } = await csi.getCapacity(question, { timeoutMs, gateway });
    return availableCapacity >= bytes
      ? undefined
      : `no room for ${bytes} bytes; the driver has ${availableCapacity}`;
  } catch (error) {
    if (!(error instanceof CsiError)) throw error;
    // As upstream, the node tries to create the volume after an error of the driver.
    return error.driverSaid ? undefined : error.message;
  }
}

/** How long the node does not ask for a size again that the driver refused for lack of room. */
const REFUSAL_MS = 30_000;

/** For each class, the size that the driver refused in the last 30 s for lack of room, whatever it
 * says about its capacity. Classes may have separate storage. */
export class RefusedSizes {
  readonly #clock: Clock;
  readonly #byClass = new Map<string, { readonly bytes: bigint; readonly untilMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(className: string, bytes: bigint): void {
    const untilMs = this.#clock.nowMs() + REFUSAL_MS;
    this.#byClass.set(className, { bytes, untilMs });
  }

  /** Whether a volume of this class and size, or of a smaller one, was refused. */
  includes(className: string, bytes: bigint): boolean {
    const refused = this.#byClass.get(className);
    return refused !== undefined && bytes >= refused.bytes && this.#clock.nowMs() < refused.untilMs;
  }
}

function withSelectedNode(claim: Claim, node: string): Claim {
  const { metadata } = claim;
  const annotations = { ...metadata.annotations, [SELECTED_NODE]: node };
  return { ...claim, metadata: { ...metadata, annotations } };
}

/** Writes the claim with its node, unless the claim has changed. */
async function writeClaim(
  { kube, log }: Dependencies,
  node: string,
  claim: Claim,
): Promise<Intent> {
  const { namespace = '', name } = claim.metadata;
  try {
    await kube.update<Claim>(claims, { namespace, name }, claim);
  } catch (error) {
    if (!isConflict(error)) throw error;
    const reason = 'the claim has changed meanwhile';
    return { kind: 'end', outcome: { kind: 'later', reason, delayMs: 0 } };
  }
  const note = `node ${node} is selected for the claim`;
  log.debug({ claim: `${namespace}/${name}`, node }, note);
  return { kind: 'end', outcome: { kind: 'done', note, needsNode: true } };
}
