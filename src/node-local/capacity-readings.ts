import QuickLRU from 'quick-lru';
import { create, toBinary } from '@bufbuild/protobuf';
import { type GetCapacityRequest, GetCapacityRequestSchema } from '../csi/generated/csi_pb.ts';
import { CsiError } from '../csi/status.ts';
import { nodeAddress } from '../gateway-client/gateway-address.ts';
import type { CapacityCalls } from '../gateway-client/pool.ts';
import type { NodeReservations } from './reserved-capacity.ts';
import type { Clock } from '../runtime/clock.ts';

/** What a node's driver said about its capacity. */
export interface Reading {
  /** Undefined if the driver could not say: then only the attempt tells. */
  readonly capacity: bigint | undefined;
  /** NodeReservations.madeBytes from before the driver was asked. */
  readonly madeBefore: number;
}

export interface CapacityQuestion {
  readonly node: string;
  readonly request: Pick<GetCapacityRequest, 'volumeCapabilities' | 'parameters'> & {
    readonly accessibleTopology: GetCapacityRequest['accessibleTopology'];
  };
  /** As read before this question is asked. */
  readonly room: NodeReservations;
  /** Version of ReservationView. */
  readonly version: string;
}

interface Options {
  readonly csi: CapacityCalls;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

interface Kept {
  readonly version: string;
  /** When it was asked for; for a failure, when it failed. Infinity: no answer yet. */
  atMs: number;
  readonly reading: Promise<Reading>;
}

/** A node, and the class of a volume there. */
export interface NodeAndClass {
  readonly node: string;
  readonly className: string;
}

/** A node had no room for a volume of this size. */
interface Refusal {
  readonly bytes: bigint;
  readonly untilMs: number;
  /** Version of ReservationView when a node was first chosen after it. */
  readonly version?: string;
}

/** What is used meanwhile by others than sutler goes unnoticed for so long. */
const MAX_AGE_MS = 1_000;
/** How long a node that refused a volume for want of room counts as too small for it. */
const REFUSAL_MS = 30_000;
/** Nodes times classes. */
const MAX_KEPT = 5_000;

/** Asks drivers for their capacity, and keeps each answer for a second: claims of a burst share
 * one, since the reservations of reserved-capacity.ts say what has changed since. */
export class CapacityReadings {
  readonly #options: Options;
  readonly #kept = new QuickLRU<string, Kept>({ maxSize: MAX_KEPT });
  readonly #refusals = new QuickLRU<string, Refusal>({ maxSize: MAX_KEPT });

  constructor(options: Options) {
    this.#options = options;
  }

  /** @param mayBeKept  whether an answer of the last second will do
   * @throws CsiError if the node can't be asked */
  read(question: CapacityQuestion, mayBeKept: boolean): Promise<Reading> {
    const { clock } = this.#options;
    const { node, room, version } = question;
    const request = create(GetCapacityRequestSchema, question.request);
    const bytes = toBinary(GetCapacityRequestSchema, request);
    const key = `${node}\n${Buffer.from(bytes).toString('latin1')}`;
    const kept = this.#kept.get(key);
    const nowMs = clock.nowMs();
    const isFresh = kept?.version === version && nowMs - kept.atMs < MAX_AGE_MS;
    if (kept !== undefined && isFresh && mayBeKept) return kept.reading;
    const reading = this.#ask(node, bytes, room);
    // A question is shared, and so is a failure: claims of a burst need not all wait for a node
    // that is down, each as long as a call may take.
    const asked: Kept = { version, atMs: Infinity, reading };
    reading.then(
      () => (asked.atMs = nowMs),
      () => (asked.atMs = clock.nowMs()),
    );
    this.#kept.set(key, asked);
    return reading;
  }

  async #ask(node: string, request: Uint8Array, { madeBytes }: NodeReservations): Promise<Reading> {
    const { csi, timeoutMs } = this.#options;
    const settings = { timeoutMs, gateway: nodeAddress(node) };
    try {
      const { availableCapacity } = await csi.getCapacity(request, settings);
      return { capacity: availableCapacity, madeBefore: madeBytes };
    } catch (error) {
      // As upstream: an error of the driver here does not keep the node from trying.
      if (error instanceof CsiError && error.driverSaid)
        return { capacity: undefined, madeBefore: madeBytes };
      throw error;
    }
  }

  /** The driver on a node has refused a volume of this class and size for want of room, whatever it
   * says about its capacity. Other classes may have storage of their own there. */
  refused(place: NodeAndClass, bytes: bigint): void {
    const untilMs = this.#options.clock.nowMs() + REFUSAL_MS;
    this.#refusals.set(keyOf(place), { bytes, untilMs });
  }

  /** Whether the node refused a volume of this class and size a short time ago, and none was
   * deleted since.
   * @param version of ReservationView */
  hasRefused(place: NodeAndClass, bytes: bigint, version: string): boolean {
    const refusal = this.#refusals.get(keyOf(place));
    if (refusal === undefined || bytes < refusal.bytes) return false;
    const { version: known = version } = refusal;
    this.#refusals.set(keyOf(place), { ...refusal, version: known });
    return known === version && this.#options.clock.nowMs() < refusal.untilMs;
  }
}

function keyOf({ node, className }: NodeAndClass): string {
  return `${node}\n${className}`;
}
