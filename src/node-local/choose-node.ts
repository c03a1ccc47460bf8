import { fromBinary } from '@bufbuild/protobuf';
import { type CreateVolumeRequest, CreateVolumeRequestSchema } from '../csi/generated/csi_pb.ts';
import { CsiError } from '../csi/status.ts';
import type { Reading } from './capacity-readings.ts';
import type { NodeLocal } from './open-node-local.ts';
import type { EligibleNode } from './node-rules.ts';
import type { NodeReservations, ReservationView } from './reserved-capacity.ts';

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
  /** `roomVersion`: of the ReservationView by which it was decided. */
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
  /** From before any node was asked: what grows meanwhile has to end the wait. */
  version: string | undefined;
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
    version: undefined,
  };
  for (let from = 0; from < order.length; from += BATCH) {
    const nodes = order.slice(from, from + BATCH);
    const name = await chooseAmong(local, { ...wanted, request, nodes, bytes }, findings);
    if (name !== undefined) return { kind: 'node', name };
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
): Promise<string | undefined> {
  const first = await readNodes(local, batch, findings, true);
  const name = await reserveOn(local, batch, first.candidates);
  if (name !== undefined) return name;
  // Volumes under way may be counted twice on nodes that are large enough, so these are asked
  // anew. A node that is too small is not: every claim that waits would ask all of them.
  const isLargeEnough = ({ reading: { capacity = batch.bytes } }: Candidate): boolean =>
    capacity >= batch.bytes;
  const nodes = first.candidates.filter(isLargeEnough);
  const again = await readNodes(local, { ...batch, nodes }, findings, false);
  const readings = new Map([...first.readings, ...again.readings]);
  for (const node of batch.nodes)
    note(findings, { node: node.name, bytes: batch.bytes, reading: readings.get(node.name) });
  return reserveOn(local, batch, again.candidates);
}

/** What some nodes answered, by their names. */
interface Answers {
  readonly readings: ReadonlyMap<string, Reading | CsiError>;
  readonly candidates: readonly Candidate[];
}

/** While a node with room is known, answers of others are waited for no longer than this: a driver
 * may never answer. */
const PATIENCE_MS = 500;

/** @param mayBeKept as CapacityReadings.read() takes it
 * @throws RecordsUnavailable */
async function readNodes(
  local: NodeLocal,
  batch: Batch,
  findings: Findings,
  mayBeKept: boolean,
): Promise<Answers> {
  const { nodes, bytes } = batch;
  const readings = new Map<string, Reading | CsiError>();
  const candidates: Candidate[] = [];
  if (nodes.length === 0) return { readings, candidates };
  const view = await local.room.look(nodes.map(({ name }) => name));
  findings.version ??= view.version;
  const asked = nodes.map(async (node): Promise<boolean> => {
    try {
      const reading = await readNode(local, batch, { node, view, mayBeKept });
      readings.set(node.name, reading);
      const candidate = toCandidate(node, view, reading);
      candidates.push(candidate);
      return hasRoom(candidate, bytes);
    } catch (error) {
      if (!(error instanceof CsiError)) throw error;
      readings.set(node.name, error);
      return false;
    }
  });
  await waitForEnough(asked, PATIENCE_MS);
  // Copies, since later answers may still come.
  return { readings: new Map(readings), candidates: [...candidates] };
}

function hasRoom({ freeBytes }: Candidate, bytes: bigint): boolean {
  return freeBytes >= Number(bytes);
}

/** Reserves room on the best of the nodes that have it. */
async function reserveOn(
  { room }: NodeLocal,
  { bytes, claimUid: uid }: Batch,
  candidates: readonly Candidate[],
): Promise<string | undefined> {
  const fitting = candidates
    .filter((each) => hasRoom(each, bytes))
    .sort((a, b) => rank(b) - rank(a));
  for (const { name, reading } of fitting) {
    const capacity = reading.capacity === undefined ? UNLIMITED : Number(reading.capacity);
    const { madeBefore } = reading;
    const claim = { uid, node: name, bytes: Number(bytes), capacity, madeBefore };
    if ((await room.reserve(claim)) === 'reserved') return name;
  }
  return undefined;
}

async function readNode(
  local: NodeLocal,
  { request, bytes, className, hasCapacity }: Batch,
  look: {
    readonly node: EligibleNode;
    readonly view: ReservationView;
    readonly mayBeKept: boolean;
  },
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

function roomOf({ byNode }: ReservationView, node: string): NodeReservations {
  return byNode.get(node) ?? { reservedBytes: 0, madeBytes: 0 };
}

function toCandidate(node: EligibleNode, view: ReservationView, reading: Reading): Candidate {
  const { reservedBytes, madeBytes } = roomOf(view, node.name);
  const capacity = reading.capacity === undefined ? UNLIMITED : Number(reading.capacity);
  const freeBytes = capacity - reservedBytes - (madeBytes - reading.madeBefore);
  return { ...node, reading, freeBytes };
}

/** Nodes that say how much room they have come before those that do not. */
function rank({ reading, freeBytes }: Candidate): number {
  return reading.capacity === undefined ? -1 : freeBytes;
}

function note(
  findings: Findings,
  found: {
    readonly node: string;
    readonly bytes: bigint;
    /** undefined: the driver has not answered yet. */
    readonly reading: Reading | CsiError | undefined;
  },
): void {
  const { node, bytes, reading } = found;
  if (reading === undefined || reading instanceof CsiError) {
    findings.failed += 1;
    findings.failure ??= `node ${node}: ${reading?.message ?? 'no answer yet'}`;
    return;
  }
  const { capacity } = reading;
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
  return { kind: 'full', message, roomVersion: version ?? '0' };
}

function shuffle<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

/** Waits until all answers are there, or until `patienceMs` after the first one that suffices.
 * Rejects if one of them does before that. */
async function waitForEnough(
  answers: readonly Promise<boolean>[],
  patienceMs: number,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise<void>((resolve) => {
    const begin = (suffices: boolean): void => {
      if (suffices) timer ??= setTimeout(resolve, patienceMs);
    };
    for (const answer of answers) answer.then(begin, () => undefined);
  });
  await Promise.race([Promise.all(answers), patience]);
  clearTimeout(timer);
}
