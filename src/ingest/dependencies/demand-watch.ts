import type { KubeClient } from '../../kube/client.ts';
import { startReflector, type Reflector, type Transformed } from '../../kube/reflector.ts';
import {
  keyOf,
  secrets,
  snapshotContents,
  snapshots,
  volumeAttachments,
  volumeAttributesClasses,
  type Resource,
  selectName,
} from '../../kube/resources.ts';
import { objectId, parseObjectId } from '../../queue/dependency-index.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Logger } from '../../runtime/log.ts';
import { transformName } from '../objects/transforms.ts';

export interface DemandWatchOptions {
  readonly client: KubeClient;
  /** Watch secrets too, each by its name, so that no permission to list all of them is needed. */
  readonly watchSecrets: boolean;
  /** Called when an object was added, modified or deleted. */
  readonly onChange: (object: string) => void;
  readonly clock: Clock;
  readonly log: Logger;
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

const LINGER_MS = 300_000;
/** Limit of watches on single objects, since each is a connection. A key whose secret is not
 * watched runs again after the longest back-off. */
const MAX_SINGLE_WATCHES = 100;

/** What one watch covers: a resource, or a single object of it. */
interface Scope {
  /** The plural of the resource, or the object's id. */
  readonly id: string;
  readonly resource: Resource;
  readonly single?: { readonly namespace: string; readonly fieldSelector: string };
}

interface Watch {
  readonly scope: Scope;
  readonly reflector: Reflector<Transformed>;
  /** The reflector's trouble before its first list. */
  readonly initialTrouble: string | undefined;
  /** When a key last waited for an object in the scope. */
  lastWantedMs: number;
  logged: 'nothing' | 'watching' | 'failing';
}

/** Watches the objects that keys wait for, as long as one does: a kind that no key waits for costs
 * nothing. Keeps only the name and version of an object. */
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
    const wanted = new Map(
      [...objects]
        .flatMap((object) => this.#scopeOf(object) ?? [])
        .map((scope) => [scope.id, scope]),
    );
    for (const [id, watch] of this.#watches) this.#update(watch, wanted.has(id));
    for (const scope of wanted.values()) if (this.#hasRoomFor(scope)) this.#start(scope);
  }

  /** The version of an object; '' = it does not exist. Undefined: it is not watched, or its watch
   * has not synced or is interrupted. */
  versionOf(object: string): string | undefined {
    const reflector = this.#watches.get(this.#scopeOf(object)?.id ?? '')?.reflector;
    if (reflector?.hasSynced !== true || reflector.trouble !== undefined) return undefined;
    const { namespace, name } = parseObjectId(object);
    return reflector.get(keyOf({ namespace, name }))?.metadata.resourceVersion ?? '';
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#watches.values()].map(({ reflector }) => reflector.stop()));
    this.#watches.clear();
  }

  #scopeOf(object: string): Scope | undefined {
    const { resource: plural, namespace, name } = parseObjectId(object);
    if (plural === secrets.plural && this.#options.watchSecrets) {
      const single = { namespace, fieldSelector: selectName(name) };
      return { id: object, resource: secrets, single };
    }
    const resource = ON_DEMAND.find((candidate) => candidate.plural === plural);
    return resource === undefined ? undefined : { id: plural, resource };
  }

  #update(watch: Watch, isWanted: boolean): void {
    const { clock, lingerMs = LINGER_MS } = this.#options;
    const { scope, reflector } = watch;
    const nowMs = clock.nowMs();
    if (isWanted) watch.lastWantedMs = nowMs;
    this.#logState(watch);
    const keepMs = scope.single === undefined ? lingerMs : 0;
    if (isWanted || nowMs - watch.lastWantedMs < keepMs) return;
    this.#watches.delete(scope.id);
    void reflector.stop();
  }

  #hasRoomFor({ id, single }: Scope): boolean {
    if (this.#watches.has(id)) return false;
    if (single === undefined) return true;
    const singles = [...this.#watches.values()].filter(({ scope }) => scope.single !== undefined);
    return singles.length < MAX_SINGLE_WATCHES;
  }

  #start(scope: Scope): void {
    const { client, onChange, clock, log } = this.#options;
    const { resource, single } = scope;
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
    this.#watches.set(scope.id, {
      scope,
      reflector,
      initialTrouble: reflector.trouble,
      lastWantedMs: clock.nowMs(),
      logged: 'nothing',
    });
  }

  #logState(watch: Watch): void {
    const { log } = this.#options;
    const { trouble } = watch.reflector;
    const state = trouble === undefined ? 'watching' : 'failing';
    if (trouble === watch.initialTrouble || state === watch.logged) return;
    watch.logged = state;
    const watched = watch.scope.id;
    if (trouble === undefined) log.info({ watched }, 'watching it, because keys wait for it');
    else log.warn({ watched, reason: trouble }, 'keys wait for it, but the watch fails; retrying');
  }
}
