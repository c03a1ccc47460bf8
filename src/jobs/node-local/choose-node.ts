import { fromBinary } from '@bufbuild/protobuf';
import { type CreateVolumeRequest, CreateVolumeRequestSchema } from '../../csi/generated/csi_pb.ts';
import { CsiError } from '../../csi/status.ts';
import type { NodeRoom, RoomView } from '../../records/reserved-room.ts';
import type { EligibleNode } from '../../volumes/node-local/eligible-nodes.ts';
import type { Reading } from './capacity-readings.ts';
import type { NodeLocal } from './node-local.ts';

/** For which claim a node is wanted. */
export interface Wanted {
  readonly claimUid: string;
  readonly className: string;
  /** The CreateVolumeRequest, planned for any of the nodes. */
  readonly request: Uint8Array;
  readonly nodes: readonly EligibleNode[];
  /** Whether the driver answers GetCapacity. */
  readonly hasCapacity: boolean;
}

export type Choice =
  /** Room is reserved there. */
  | { readonly kind: 'node'; readonly name: string }
  /** Nodes have room, but volumes under way may need it. */
  | { readonly kind: 'busy' }
  /** No node could be asked. */
  | { readonly kind: 'unreachable'; readonly reason: string }
  /** `roomVersion`: of the RoomView by which it was decided. */
  | { readonly kind: 'full'; readonly message: string; readonly roomVersion: string };

/** How many nodes are asked at once. If none of them has room, others are. */
const BATCH = 16;
/** More than any volume. */
const UNLIMITED = 2 ** 63;

/** What a node can still take, as far as is known. */
interface Candidate extends EligibleNode {
  readonly reading: Reading;
  /** Bytes that are certainly free, though more may be. */
  readonly freeBytes: number;
}

/** What was found about the nodes that were asked. */
interface Findings {
  asked: number;
  isBusy: boolean;
  most: { readonly node: string; readonly bytes: bigint } | undefined;
  failure: string | undefined;
  failed: number;
  version: string;
}

/** Chooses a node with room for a claim that any of them may have, and reserves the room. Asks the
 * driver on each node for its capacity, some nodes at a time. Upstream: external-provisioner
 * pkg/controller/controller.go becomeOwner, where all nodes race.
 * @throws RecordsUnavailable */
export async function chooseNode(local: NodeLocal, wanted: Wanted): Promise<Choice> {
  const request = fromBinary(CreateVolumeRequestSchema, wanted.request);
  const bytes = request.capacityRange?.requiredBytes ?? 0n;
  const order = shuffle(wanted.nodes, local.random);
  const findings: Findings = {
    asked: 0,
    isBusy: false,
    most: undefined,
    failure: undefined,
    failed: 0,
    version: '0',
  };
  for (let from = 0; from < order.length; from += BATCH) {
    const nodes = order.slice(from, from + BATCH);
    const batch = { ...wanted, request, nodes, bytes };
    // First by answers of the last second, then by new ones.
    for (const mayBeKept of [true, false]) {
      const name = await chooseAmong(local, batch, findings, mayBeKept);
      if (name !== undefined) return { kind: 'node', name };
    }
  }
  return explain(findings, bytes);
}

interface Batch extends Omit<Wanted, 'request'> {
  readonly request: CreateVolumeRequest;
  readonly bytes: bigint;
}

/** @returns the node where room is reserved now; undefined for none of these */
async function chooseAmong(
  local: NodeLocal,
  batch: Batch,
  findings: Findings,
  mayBeKept: boolean,
): Promise<string | undefined> {
  const { nodes, bytes, claimUid: uid } = batch;
  const view = await local.room.look(nodes.map(({ name }) => name));
  findings.version = view.version;
  const answers = await Promise.all(
    nodes.map((node) => askNode(local, batch, { node, view, mayBeKept })),
  );
  // Kept answers may be outdated, so only new ones explain why no node will do.
  if (!mayBeKept) for (const answer of answers) note(findings, answer, bytes);
  const fitting = answers
    .flatMap(({ node, reading }) => (reading === undefined ? [] : toCandidate(node, view, reading)))
    .filter(({ freeBytes }) => freeBytes >= Number(bytes))
    .sort((a, b) => rank(b) - rank(a));
  for (const { name, reading } of fitting) {
    const capacity = reading.capacity === undefined ? UNLIMITED : Number(reading.capacity);
    const { madeBefore } = reading;
    const claim = { uid, node: name, bytes: Number(bytes), capacity, madeBefore };
    if ((await local.room.reserve(claim)) === 'reserved') return name;
  }
  return undefined;
}

/** What asking one node has led to. */
type Answer =
  | { readonly node: EligibleNode; readonly reading: Reading }
  | { readonly node: EligibleNode; readonly reading?: never; readonly failure: CsiError };

async function askNode(...args: Parameters<typeof readNode>): Promise<Answer> {
  const [, , { node }] = args;
  try {
    return { node, reading: await readNode(...args) };
  } catch (error) {
    if (error instanceof CsiError) return { node, failure: error };
    throw error;
  }
}

async function readNode(
  local: NodeLocal,
  { request, bytes, className, hasCapacity }: Batch,
  look: { readonly node: EligibleNode; readonly view: RoomView; readonly mayBeKept: boolean },
): Promise<Reading> {
  const { node, view, mayBeKept } = look;
  const room = roomOf(view, node.name);
  const madeBefore = room.madeBytes;
  if (local.readings.hasRefused({ node: node.name, className }, bytes, view.version))
    return { capacity: 0n, madeBefore };
  if (!hasCapacity || bytes === 0n) return { capacity: undefined, madeBefore };
  const { volumeCapabilities, parameters } = request;
  const accessibleTopology = node.segments && {
    $typeName: 'csi.v1.Topology' as const,
    segments: { ...node.segments },
  };
  const question = { volumeCapabilities, parameters, accessibleTopology };
  const { version } = view;
  return local.readings.read({ node: node.name, request: question, room, version }, mayBeKept);
}

function roomOf({ byNode }: RoomView, node: string): NodeRoom {
  return byNode.get(node) ?? { reservedBytes: 0, madeBytes: 0 };
}

function toCandidate(node: EligibleNode, view: RoomView, reading: Reading): Candidate {
  const { reservedBytes, madeBytes } = roomOf(view, node.name);
  const capacity = reading.capacity === undefined ? UNLIMITED : Number(reading.capacity);
  const freeBytes = capacity - reservedBytes - (madeBytes - reading.madeBefore);
  return { ...node, reading, freeBytes };
}

/** Nodes that say how much room they have come before those that do not. */
function rank({ reading, freeBytes }: Candidate): number {
  return reading.capacity === undefined ? -1 : freeBytes;
}

function note(findings: Findings, answer: Answer, bytes: bigint): void {
  const node = answer.node.name;
  if (answer.reading === undefined) {
    findings.failed += 1;
    findings.failure ??= `node ${node}: ${answer.failure.message}`;
    return;
  }
  const { capacity } = answer.reading;
  findings.asked += 1;
  if (capacity === undefined || capacity >= bytes) findings.isBusy = true;
  else if (findings.most === undefined || capacity > findings.most.bytes)
    findings.most = { node, bytes: capacity };
}

function explain(
  { asked, isBusy, most, failed, failure, version }: Findings,
  bytes: bigint,
): Choice {
  if (isBusy) return { kind: 'busy' };
  if (most === undefined) return { kind: 'unreachable', reason: failure ?? 'no node was asked' };
  const others = failed === 0 ? '' : `; ${failed} more could not be asked (${failure})`;
  const message =
    `no node has room for ${bytes} bytes: ${asked} were asked, and the most that one has is ` +
    `${most.bytes} bytes, on node ${most.node}${others}`;
  return { kind: 'full', message, roomVersion: version };
}

function shuffle<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
