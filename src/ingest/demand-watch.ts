import type { KubeClient } from '../kube/client.ts';
import { startReflector } from '../kube/reflector.ts';
import type { Transformed, Reflector } from '../kube/reflector.ts';
import {
  keyOf,
  secrets,
  snapshotContents,
  snapshots,
  volumeAttachments,
  volumeAttributesClasses,
} from '../kube/resources.ts';
import type { Resource } from '../kube/resources.ts';
import { objectId, parseObjectId } from '../queue/wait-list.ts';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { transformName } from './transforms.ts';

/** Watches the objects that keys wait for, for as long as something waits: a cluster that does not
 * use a kind pays nothing for it. */
export interface DemandWatch {
  /** Watches these and no others; what it does not know is left out. To be called again and again.
   */
  follow(objects: ReadonlySet<string>): void;
  /** Version of an object, '' = it is not there; undefined: not watched, or not known now. */
  versionOf(object: string): string | undefined;
  stop(): Promise<void>;
}

export interface DemandWatchOptions {
  readonly client: KubeClient;
  /** Secrets too: each alone and by its name, so that nobody has to grant more. */
  readonly watchSecrets: boolean;
  /** An object that came, changed or went. */
  readonly onChange: (object: string) => void;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long a resource is still watched after the last key stopped waiting for it: keys that are
   * woken often wait again, and a list costs more than a watch. */
  readonly lingerMs?: number;
}

/** Watched as a whole when the first key waits for one of them. Where the API server does not know
 * a resource, its definition may come later. */
export const ON_DEMAND: readonly Resource[] = [
  snapshots,
  snapshotContents,
  volumeAttributesClasses,
  volumeAttachments,
];

const LINGER_MS = 300_000;
/** Watches of one object each. They are connections; keys that wait for a secret beyond this are
 * tried again at the longest wait, as without a watch. */
const MOST = 100;

/** What one watch covers. */
interface Scope {
  readonly id: string;
  readonly resource: Resource;
  readonly only?: { readonly namespace: string; readonly fieldSelector: string };
}

interface View {
  readonly reflector: Reflector<Transformed>;
  /** It covers one object. */
  readonly isAlone: boolean;
  /** What the reflector says before it has asked. */
  readonly untried: string | undefined;
  readonly lingerMs: number;
  /** When something last waited for what it covers. */
  wantedMs: number;
  /** What the log has been told. */
  told: 'nothing' | 'well' | 'ill';
}

/** Watches nothing until told to. Objects pass by and are dropped at once: only name and version
 * are kept. */
export function startDemandWatch(options: DemandWatchOptions): DemandWatch {
  const { clock, log } = options;
  const views = new Map<string, View>();

  const scopeOf = (object: string): Scope | undefined => {
    const { resource, namespace, name } = parseObjectId(object);
    if (resource === secrets.plural) {
      if (!options.watchSecrets) return undefined;
      return {
        id: object,
        resource: secrets,
        only: { namespace, fieldSelector: `metadata.name=${name}` },
      };
    }
    const whole = ON_DEMAND.find(({ plural }) => plural === resource);
    return whole === undefined ? undefined : { id: resource, resource: whole };
  };
  const watch = ({ resource, only }: Scope): View => {
    const reflector = startReflector<Transformed>({
      client: options.client,
      resource,
      ...only,
      transform: transformName,
      onChange: ({ object }) =>
        options.onChange(objectId({ resource: resource.plural, ...object.metadata })),
      // A kind that is not installed, or not granted, would be told again and again; once is
      // enough, see tell().
      log: log.child({}, { level: 'error' }),
    });
    const lingerMs = only === undefined ? (options.lingerMs ?? LINGER_MS) : 0;
    return {
      reflector,
      isAlone: only !== undefined,
      untried: reflector.trouble,
      lingerMs,
      wantedMs: clock.nowMs(),
      told: 'nothing',
    };
  };
  const alone = (): number => [...views.values()].filter(({ isAlone }) => isAlone).length;
  const tell = (id: string, view: View): void => {
    const { trouble } = view.reflector;
    const now = trouble === undefined ? 'well' : 'ill';
    if (trouble === view.untried || now === view.told) return;
    view.told = now;
    if (trouble === undefined) log.info({ watched: id }, 'keys wait for this: watching it');
    else
      log.warn(
        { watched: id, reason: trouble },
        'keys wait for what can’t be watched; trying again',
      );
  };

  return {
    follow(objects) {
      const wanted = new Map(
        [...objects].flatMap((object) => scopeOf(object) ?? []).map((scope) => [scope.id, scope]),
      );
      const nowMs = clock.nowMs();
      for (const [id, view] of views) {
        if (wanted.has(id)) view.wantedMs = nowMs;
        tell(id, view);
        if (wanted.has(id) || nowMs - view.wantedMs < view.lingerMs) continue;
        views.delete(id);
        void view.reflector.stop();
      }
      for (const [id, scope] of wanted) {
        if (views.has(id) || (scope.only !== undefined && alone() >= MOST)) continue;
        views.set(id, watch(scope));
      }
    },
    versionOf(object) {
      const view = views.get(scopeOf(object)?.id ?? '');
      if (view?.reflector.hasSynced !== true || view.reflector.trouble !== undefined)
        return undefined;
      const { namespace, name } = parseObjectId(object);
      return view.reflector.get(keyOf({ namespace, name }))?.metadata.resourceVersion ?? '';
    },
    async stop() {
      await Promise.all([...views.values()].map(({ reflector }) => reflector.stop()));
      views.clear();
    },
  };
}
