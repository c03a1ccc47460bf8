import type { TopologyRequirement } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { DriverStatus } from './driver-status.ts';
import type { VolumeStore } from './volume-store.ts';

export type Segments = Readonly<Record<string, string>>;

/** The driver's own key: the node that a volume is on. */
export const NODE_KEY = 'topology.sample.csi.sutler.dev/node';
const ZONE_KEY = 'topology.kubernetes.io/zone';

/** Storage of a fixed size, on one node or for all nodes. */
export interface Pool {
  /** Name of the node; '' for a pool that is not on a node, which serves every requirement. */
  readonly name: string;
  /** The topology of its volumes; undefined: none. */
  readonly segments: Segments | undefined;
  readonly capacityBytes: bigint;
}

/** The pool of a node, with the node and its zone as topology. */
export function nodePool(node: {
  readonly name: string;
  readonly zone: string;
  readonly capacityBytes: bigint;
}): Pool {
  const { name, zone, capacityBytes } = node;
  return { name, segments: { [NODE_KEY]: name, [ZONE_KEY]: zone }, capacityBytes };
}

/** The pools of a driver: which one a volume goes to, and how much room is left. */
export class Pools {
  readonly #pools: readonly Pool[];
  readonly #store: VolumeStore;

  constructor(pools: readonly Pool[], store: VolumeStore) {
    this.#pools = pools;
    this.#store = store;
  }

  /** Whether the driver has topology. */
  get haveTopology(): boolean {
    return this.#pools.some(({ segments }) => segments !== undefined);
  }

  get areOnNodes(): boolean {
    return this.#pools.some(({ name }) => name !== '');
  }

  /** The segments of the pool with that name. A volume that was created in a pool which no longer
   * exists has none. */
  segmentsOf(name: string): Segments | undefined {
    return this.#pools.find((pool) => pool.name === name)?.segments;
  }

  freeBytes(pool: Pool): bigint {
    const free = pool.capacityBytes - this.#store.usedBytes(pool.name);
    return free > 0n ? free : 0n;
  }

  /** The pools that have all of these segments. */
  within(segments: Segments): readonly Pool[] {
    return this.#pools.filter((pool) => isIn(pool, [segments]));
  }

  /** Chooses a pool by the first preferred term with room, then by the first requisite term; among
   * the pools of a term, the pool with the most free bytes.
   * @throws DriverStatus ResourceExhausted */
  choose(bytes: bigint, requirement: TopologyRequirement | undefined): Pool {
    const requisite = termsOf(requirement?.requisite);
    const preferred = termsOf(requirement?.preferred);
    const allowed =
      requisite.length === 0 ? this.#pools : this.#pools.filter((pool) => isIn(pool, requisite));
    const choices = [
      ...[...preferred, ...requisite].map((term) => allowed.filter((pool) => isIn(pool, [term]))),
      allowed,
    ];
    for (const pools of choices) {
      const [best] = pools.toSorted((a, b) => Number(this.freeBytes(b) - this.freeBytes(a)));
      if (best !== undefined && this.freeBytes(best) >= bytes) return best;
    }
    const most = allowed.map((pool) => this.freeBytes(pool)).reduce((a, b) => (a > b ? a : b), 0n);
    throw new DriverStatus(
      Code.ResourceExhausted,
      `the emptiest pool that may be used has ${most} free bytes, ${bytes} are requested`,
    );
  }

  /** Whether a volume of that pool satisfies a requirement. */
  satisfies(name: string, requirement: TopologyRequirement | undefined): boolean {
    const pool = this.#pools.find((each) => each.name === name);
    const requisite = termsOf(requirement?.requisite);
    return pool === undefined || requisite.length === 0 || isIn(pool, requisite);
  }
}

/** Whether a pool is in one of the terms. */
function isIn({ name, segments = {} }: Pool, terms: readonly Segments[]): boolean {
  return name === '' || terms.some((term) => hasSegments(segments, term));
}

function termsOf(topologies: TopologyRequirement['requisite'] = []): readonly Segments[] {
  return topologies.map(({ segments }) => segments);
}

function hasSegments(segments: Segments, wanted: Segments): boolean {
  return Object.entries(wanted).every(([key, value]) => segments[key] === value);
}
