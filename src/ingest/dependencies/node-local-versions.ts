import type { NodeGatewayPool } from '../../gateway-client/node-pool.ts';
import { objectId, parseObjectId } from '../../queue/dependency-index.ts';
import {
  ANY,
  gatewaysVersion,
  gatewayVersion,
  NODE_GATEWAYS,
  ROOM,
} from '../../node-local/wait-conditions.ts';
import type { ReservedCapacity } from '../../node-local/reserved-capacity.ts';
import type { Logger } from '../../runtime/log.ts';

const ROOM_ID = objectId({ resource: ROOM, name: ANY });

interface NodeLocalOptions {
  readonly gateways: Pick<NodeGatewayPool, 'isReady' | 'readyNodes' | 'onChange'>;
  readonly room: Pick<ReservedCapacity, 'version'>;
  /** Called with the id in the wait list of what has changed. */
  readonly onChange: (object: string) => void;
  readonly log: Logger;
}

/** Knows the versions of what keys wait for with --node-deployment: the gateways of
 * nodes, and more room on nodes. */
export class NodeLocalVersions {
  readonly #options: NodeLocalOptions;
  /** As Redis last had it, while a key waits for room. */
  #roomVersion: string | undefined;
  #isReading = false;

  constructor(options: NodeLocalOptions) {
    this.#options = options;
    const { gateways, onChange } = options;
    gateways.onChange((node) => {
      onChange(objectId({ resource: NODE_GATEWAYS, name: node }));
      onChange(objectId({ resource: NODE_GATEWAYS, name: ANY }));
    });
  }

  /** Undefined: another object, or the room on nodes before its version was read. */
  versionOf(object: string): string | undefined {
    const { resource, name } = parseObjectId(object);
    if (resource === ROOM) return this.#roomVersion;
    if (resource !== NODE_GATEWAYS) return undefined;
    return name === ANY
      ? gatewaysVersion(this.#options.gateways.readyNodes())
      : gatewayVersion(this.#options.gateways.isReady(name));
  }

  /** To be called each second with all objects that keys wait for. Reads the version of the room
   * while a key waits for it. */
  follow(objects: ReadonlySet<string>): void {
    if (!objects.has(ROOM_ID)) this.#roomVersion = undefined;
    else if (!this.#isReading) void this.#read();
  }

  async #read(): Promise<void> {
    this.#isReading = true;
    try {
      const version = await this.#options.room.version();
      const hasChanged = version !== this.#roomVersion;
      this.#roomVersion = version;
      if (hasChanged) this.#options.onChange(ROOM_ID);
    } catch (error) {
      this.#options.log.debug({ err: error }, 'could not read the room on nodes; trying again');
    } finally {
      this.#isReading = false;
    }
  }
}
