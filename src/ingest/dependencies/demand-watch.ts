import type { Registry } from 'prom-client';
import type { KubeClient } from '../../kube/client.ts';
import { startReflector, type Transformed } from '../../kube/reflector.ts';
import {
  csiNodes,
  keyOf,
  nodes,
  type Resource,
  secrets,
  selectName,
  snapshotContents,
  snapshots,
  volumeAttachments,
  volumeAttributesClasses,
} from '../../kube/resources.ts';
import { objectId, parseObjectId } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { startNodeWatch } from '../../topology/node-watch.ts';
import { transformName } from '../objects/transforms.ts';

export interface DemandWatchOptions {
  readonly client: KubeClient;
  readonly driver: string;
  /** The only node whose changes count; undefined for all. */
  readonly ownNode?: string | undefined;
  /** Watch secrets too, each by its name, so that no permission to list all of them is needed. */
  readonly watchSecrets: boolean;
  /** Called when an object was added, modified or deleted. */
  readonly onChange: (object: string) => void;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics?: Registry;
  /** How long a resource stays watched after the last key stopped waiting for it. Promoted keys
   * often park again, and a new list would cost more than the watch. */
  readonly lingerMs?: number;
}

/** Resources that are watched as a whole while a key waits for an object of them. One that the API
 * server does not serve is tried again: its CustomResourceDefinition may be installed later. */
export const ON_DEMAND: readonly Resource[] = [
  snapshots,
  snapshotContents,
  volumeAttributesClasses,
  volumeAttachments,
];

const NODES_ID = objectId({ resource: nodes.plural, name: '*' });
const CSI_NODES_ID = objectId({ resource: csiNodes.plural, name: '*' });

const LINGER_MS = 300_000;
/** Limit of watches on single objects, since each is a connection. A key whose secret is not
 * watched runs again after the longest back-off. */
const MAX_SINGLE_WATCHES = 100;
/** Changes of nodes within this time are reported as one: a group of nodes often comes at once. */
const COLLECT_MS = 250;

interface Found {
  readonly hasSynced: boolean;
  /** Why it may be out of date; undefined while it is not. */
  readonly trouble: string | undefined;
  versionOf(object: string): string;
  stop(): Promise<void>;
}

interface Scope {
  /** The plural of a resource, or the id of a single object. */
  readonly id: string;
  readonly isSingle: boolean;
  readonly start: () => Found;
}

interface Watch {
  readonly scope: Scope;
  readonly found: Found;
  /** Its trouble before the first list. */
  readonly initialTrouble: string | undefined;
  /** When a key last waited for an object in the scope. */
  lastWantedMs: number;
  logged: 'nothing' | 'watching' | 'failing';
}

/** Watches the objects that keys wait for, as long as one does: a kind that no key waits for costs
 * nothing. Keeps only the name and version of an object, and of nodes what the driver's topology is
 * made of: a claim that fits on none waits for all of them. */
export class DemandWatch {
  readonly #options: DemandWatchOptions;
  /** By scope. */
  readonly #watches = new Map<string, Watch>();

  constructor(options: DemandWatchOptions) {
    this.#options = options;
  }

  /** Watches these objects and no others; those of unknown resources are ignored. To be called
   * regularly, since it also ends the watches that no key has needed for `lingerMs`. */
  follow(objects: ReadonlySet<string>): void {
    const scopes = [...objects].flatMap((object) => this.#scopeOf(object) ?? []);
    const wanted = new Map(scopes.map((scope) => [scope.id, scope]));
    for (const [id, watch] of this.#watches) this.#update(watch, wanted.has(id));
    for (const scope of wanted.values()) if (this.#hasRoomFor(scope)) this.#start(scope);
  }

  /** The version of an object; '' = it does not exist. Undefined: it is not watched, or its watch
   * has not synced or is interrupted. */
  versionOf(object: string): string | undefined {
    const found = this.#watches.get(this.#scopeOf(object)?.id ?? '')?.found;
    if (found?.hasSynced !== true || found.trouble !== undefined) return undefined;
    return found.versionOf(object);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#watches.values()].map(({ found }) => found.stop()));
    this.#watches.clear();
  }

  #scopeOf(object: string): Scope | undefined {
    const { resource: plural, namespace, name } = parseObjectId(object);
    if (object === NODES_ID || object === CSI_NODES_ID)
      return { id: nodes.plural, isSingle: false, start: () => this.#watchNodes() };
    if (plural === secrets.plural && this.#options.watchSecrets) {
      const single = { namespace, fieldSelector: selectName(name) };
      return { id: object, isSingle: true, start: () => this.#watch(secrets, single) };
    }
    const resource = ON_DEMAND.find((candidate) => candidate.plural === plural);
    if (resource === undefined) return undefined;
    return { id: plural, isSingle: false, start: () => this.#watch(resource) };
  }

  #update(watch: Watch, isWanted: boolean): void {
    const { clock, lingerMs = LINGER_MS } = this.#options;
    const { scope, found } = watch;
    const nowMs = clock.nowMs();
    if (isWanted) watch.lastWantedMs = nowMs;
    this.#logState(watch);
    const keepMs = scope.isSingle ? 0 : lingerMs;
    if (isWanted || nowMs - watch.lastWantedMs < keepMs) return;
    this.#watches.delete(scope.id);
    void found.stop();
  }

  #hasRoomFor({ id, isSingle }: Scope): boolean {
    if (this.#watches.has(id)) return false;
    const singles = [...this.#watches.values()].filter(({ scope }) => scope.isSingle);
    return !isSingle || singles.length < MAX_SINGLE_WATCHES;
  }

  #start(scope: Scope): void {
    const found = scope.start();
    this.#watches.set(scope.id, {
      scope,
      found,
      initialTrouble: found.trouble,
      lastWantedMs: this.#options.clock.nowMs(),
      logged: 'nothing',
    });
  }

  #watch(
    resource: Resource,
    single?: { readonly namespace: string; readonly fieldSelector: string },
  ): Found {
    const { client, onChange, log } = this.#options;
    const reflector = startReflector<Transformed>({
      client,
      resource,
      ...single,
      transform: transformName,
      onChange: ({ object }) =>
        onChange(objectId({ resource: resource.plural, ...object.metadata })),
      // The reflector would report a kind that is not installed, or not granted, again and again;
      // #logState reports it once.
      log: log.child({}, { level: 'error' }),
    });
    return Object.assign(reflector, {
      versionOf(object: string): string {
        const { namespace, name } = parseObjectId(object);
        return reflector.get(keyOf({ namespace, name }))?.metadata.resourceVersion ?? '';
      },
    });
  }

  #watchNodes(): Found {
    const { client, driver, ownNode, onChange, log, metrics } = this.#options;
    let timer: NodeJS.Timeout | undefined;
    const collect = (): void => {
      timer = undefined;
      for (const id of [NODES_ID, CSI_NODES_ID]) onChange(id);
    };
    const watch = startNodeWatch({
      client,
      driver,
      ownNode,
      log,
      ...(metrics === undefined ? {} : { metrics }),
      onChange: () => (timer ??= setTimeout(collect, COLLECT_MS)),
    });
    return {
      get hasSynced() {
        return watch.hasSynced;
      },
      get trouble() {
        return watch.trouble;
      },
      versionOf: (object) => watch.versionOf(object === NODES_ID ? 'nodes' : 'csinodes'),
      async stop() {
        clearTimeout(timer);
        await watch.stop();
      },
    };
  }

  #logState(watch: Watch): void {
    const { log } = this.#options;
    const { trouble } = watch.found;
    const state = trouble === undefined ? 'watching' : 'failing';
    if (trouble === watch.initialTrouble || state === watch.logged) return;
    watch.logged = state;
    const watched = watch.scope.id;
    if (trouble === undefined) log.info({ watched }, 'watching it, because keys wait for it');
    else log.warn({ watched, reason: trouble }, 'keys wait for it, but the watch fails; retrying');
  }
}
