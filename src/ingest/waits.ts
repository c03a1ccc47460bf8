import type { Counter, Registry } from 'prom-client';
import type { KubeClient } from '../kube/client.ts';
import { isForbidden, isNotFound } from '../kube/kube-error.ts';
import type { KubeObject } from '../kube/objects.ts';
import {
  claims,
  classes,
  nodes,
  secrets,
  selectName,
  snapshotContents,
  snapshots,
  volumeAttachments,
  volumeAttributesClasses,
  volumes,
} from '../kube/resources.ts';
import { PROVISIONING_PAUSE } from '../election/lease-view.ts';
import { readWaiting } from '../queue/status.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import type { WaitCondition } from '../rules/rule.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn } from '../runtime/metrics.ts';
import { PollLoop } from '../runtime/poll-loop.ts';
import { fingerprintNodes } from '../topology/fingerprint.ts';
import { NodeWatch } from '../topology/node-watch.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { ObjectSource } from './objects/object-source.ts';
import type { ProvisioningPause } from './provisioning-pause.ts';

export interface WaitsOptions extends RedisPlace {
  readonly client: KubeClient;
  /** The only node whose changes count; undefined for all. */
  readonly ownNode?: string | undefined;
  readonly queue: Pick<LeaderOnlyQueue, 'isAllowing' | 'promote'>;
  /** The classes, which are in memory. */
  readonly source: Pick<ObjectSource, 'classOf'>;
  readonly pause: Pick<ProvisioningPause, 'isNewWorkAllowed'>;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly periodMs?: number;
}

const PERIOD_MS = 5_000;
const READ_AT_ONCE = 8;
const READ_TIMEOUT_MS = 10_000;
/** How long to wait before reading an object again that this account may not read. */
const REFUSED_MS = 300_000;
const READABLE = [
  claims,
  volumes,
  secrets,
  snapshots,
  snapshotContents,
  volumeAttachments,
  volumeAttributesClasses,
];

/** Runs keys when the objects that they wait for change. Every 5 s it compares the versions that
 * the keys have seen with the current ones. It reads each object once, however many keys wait for
 * it; classes are in memory, and nodes are watched while a key waits for them. */
export class Waits {
  readonly #options: WaitsOptions;
  readonly #promoted: Counter<'driver'>;
  readonly #loop: PollLoop;
  /** By object: when it may be read again, by performance.now(). */
  readonly #refused = new Map<string, number>();
  #nodes: NodeWatch | undefined;

  constructor(options: WaitsOptions) {
    const { driver, metrics, log } = options;
    this.#options = options;
    this.#promoted = metricsIn(metrics).counter(
      'sutler_keys_woken_total',
      'Parked keys that were run because their object changed.',
      ['driver'],
    );
    this.#promoted.inc({ driver }, 0);
    this.#loop = new PollLoop({
      step: () => this.#look(),
      onError: (error) =>
        log.debug({ err: error }, 'could not read the objects that keys wait for'),
      periodMs: options.periodMs ?? PERIOD_MS,
    });
  }

  /** Looks at once, instead of in the next 5 s. */
  lookNow(): void {
    this.#loop.runNow();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#nodes?.stop();
  }

  async #look(): Promise<void> {
    const { queue, driver, log } = this.#options;
    const waiting = queue.isAllowing ? await readWaiting(this.#options) : [];
    const conditions = new Map(
      waiting.flatMap(({ until }) => until.map((each) => [idOf(each), each])),
    );
    await this.#watchNodes([...conditions.values()].some(isAboutNodes));
    const versions = await this.#versionsOf(conditions);
    for (const { key, until } of waiting) {
      const changed = until.find((each) => (versions.get(idOf(each)) ?? each.seen) !== each.seen);
      if (changed === undefined || !queue.isAllowing) continue;
      queue.promote(key);
      this.#promoted.inc({ driver });
      log.debug({ object: idOf(changed) }, 'an object changed: a key that waits for it runs');
    }
  }

  /** @returns the versions that are known now */
  async #versionsOf(
    conditions: ReadonlyMap<string, WaitCondition>,
  ): Promise<ReadonlyMap<string, string>> {
    const versions = new Map<string, string>();
    const left = [...conditions];
    while (left.length > 0) {
      const read = left.splice(0, READ_AT_ONCE).map(async ([id, condition]) => {
        const version = await this.#versionOf(id, condition);
        if (version !== undefined) versions.set(id, version);
      });
      await Promise.all(read);
    }
    return versions;
  }

  /** @returns '' if the object does not exist; undefined: not known now */
  async #versionOf(id: string, condition: WaitCondition): Promise<string | undefined> {
    const { source, pause } = this.#options;
    const { resource: plural, name } = condition;
    if (isAboutNodes(condition))
      return this.#nodes?.hasSynced === true && this.#nodes.trouble === undefined
        ? fingerprintNodes(this.#nodes)
        : undefined;
    if (plural === classes.plural) return source.classOf(name)?.metadata.resourceVersion ?? '';
    if (plural === PROVISIONING_PAUSE.resource) return pause.isNewWorkAllowed ? 'ended' : undefined;
    return this.#read(id, condition);
  }

  /** Lists one name, for which the right to list is enough. */
  async #read(id: string, { resource: plural, namespace, name }: WaitCondition) {
    const { client, log } = this.#options;
    const resource = READABLE.find((each) => each.plural === plural);
    const nowMs = performance.now();
    if (resource === undefined || nowMs < (this.#refused.get(id) ?? 0)) return undefined;
    this.#refused.delete(id);
    const one = { namespace, fieldSelector: selectName(name), metadataOnly: true };
    try {
      const options = { ...one, timeoutMs: READ_TIMEOUT_MS };
      const { items } = await client.list<KubeObject>(resource, options);
      return items[0]?.metadata.resourceVersion ?? '';
    } catch (error) {
      // The kind is not installed.
      if (isNotFound(error)) return '';
      if (isForbidden(error)) this.#refused.set(id, nowMs + REFUSED_MS);
      log.debug({ object: id, err: error }, 'could not read an object that a key waits for');
      return undefined;
    }
  }

  /** Watches the nodes while a key waits for them. */
  async #watchNodes(isNeeded: boolean): Promise<void> {
    const { client, driver, ownNode, log } = this.#options;
    if (isNeeded) this.#nodes ??= new NodeWatch({ client, driver, ownNode, log });
    if (isNeeded || this.#nodes === undefined) return;
    await this.#nodes.stop();
    this.#nodes = undefined;
  }
}

function isAboutNodes({ resource, name }: WaitCondition): boolean {
  return name === '*' && resource === nodes.plural;
}

function idOf({ resource, namespace = '', name }: WaitCondition): string {
  return `${resource}/${namespace}/${name}`;
}
