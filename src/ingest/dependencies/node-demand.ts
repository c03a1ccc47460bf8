import { csiNodes, nodes } from '../../kube/resources.ts';
import { objectId } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import type { NodeWatch } from '../../topology/node-watch.ts';

export interface NodeDemandOptions {
  /** Starts a watch.
   * @param onChange to be called when the nodes have changed */
  readonly start: (onChange: () => void) => NodeWatch;
  /** Called with the ids in the wait list that stand for all nodes, and for all CSINodes. */
  readonly onChange: (object: string) => void;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long the nodes stay watched after the last key stopped waiting for them. */
  readonly lingerMs?: number;
}

const IDS = {
  [objectId({ resource: nodes.plural, name: '*' })]: 'nodes',
  [objectId({ resource: csiNodes.plural, name: '*' })]: 'csinodes',
} as const;
const LINGER_MS = 300_000;
/** Changes within this time are reported as one: a group of nodes often comes at once. */
const COLLECT_MS = 250;

/** Watches all nodes while a key waits for a change of them, that is, while a claim fits on none.
 * Keeps of each node only what the driver's topology is made of. */
export class NodeDemand {
  readonly #options: NodeDemandOptions;
  #watch: NodeWatch | undefined;
  #lastWantedMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #loggedTrouble: string | undefined;

  constructor(options: NodeDemandOptions) {
    this.#options = options;
  }

  /** To be called regularly with all objects that keys wait for. */
  follow(objects: ReadonlySet<string>): void {
    const { start, clock, lingerMs = LINGER_MS } = this.#options;
    const isWanted = Object.keys(IDS).some((id) => objects.has(id));
    if (isWanted) this.#lastWantedMs = clock.nowMs();
    if (isWanted && this.#watch === undefined) {
      this.#watch = start(() => this.#collect());
      // "Not listed yet" is no trouble at the start.
      this.#loggedTrouble = this.#watch.trouble;
    }
    this.#logTrouble();
    if (!isWanted && clock.nowMs() - this.#lastWantedMs >= lingerMs) void this.stop();
  }

  /** The version of all nodes, or of all CSINodes. Undefined: of neither, or they are not watched,
   * not listed yet, or the watch is interrupted. */
  versionOf(object: string): string | undefined {
    const resource = Object.hasOwn(IDS, object) ? IDS[object] : undefined;
    const watch = this.#watch;
    if (resource === undefined || watch?.hasSynced !== true || watch.trouble !== undefined)
      return undefined;
    return watch.versionOf(resource);
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const watch = this.#watch;
    this.#watch = undefined;
    await watch?.stop();
  }

  #collect(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const id of Object.keys(IDS)) this.#options.onChange(id);
    }, COLLECT_MS);
  }

  #logTrouble(): void {
    const reason = this.#watch?.trouble;
    if (reason === this.#loggedTrouble) return;
    this.#loggedTrouble = reason;
    if (reason !== undefined)
      this.#options.log.warn({ reason }, 'keys wait for nodes, but the watch fails; retrying');
  }
}
