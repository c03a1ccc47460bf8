import type { KubeClient } from '../kube/client.ts';
import type { Secret } from '../kube/objects.ts';
import { startReflector } from '../kube/reflector.ts';
import type { Reflector } from '../kube/reflector.ts';
import { secrets } from '../kube/resources.ts';
import { parseObjectId } from '../queue/wait-list.ts';
import type { Logger } from '../runtime/log.ts';

/** Watches single secrets by name, each for as long as something waits for it. */
export interface SecretWatch {
  /** Watches these and no others; what is no secret is left out. */
  follow(objects: ReadonlySet<string>): void;
  /** Version of a secret, '' = it is not there; undefined: not watched, or not known yet. */
  versionOf(object: string): string | undefined;
  stop(): Promise<void>;
}

/** Watches are connections; keys that wait for a secret beyond this are tried again at the longest wait, as without a watch. */
const MOST = 100;

type Name = Pick<Secret, 'metadata'>;

/** Watches nothing until told to. Values pass by and are dropped at once: only name and version are kept. */
export function startSecretWatch(o: {
  readonly client: KubeClient;
  readonly onChange: (object: string) => void;
  readonly log: Logger;
}): SecretWatch {
  const views = new Map<string, Reflector<Name>>();

  const watch = (object: string): Reflector<Name> => {
    const { namespace, name } = parseObjectId(object);
    return startReflector<Name>({
      client: o.client,
      resource: secrets,
      namespace,
      fieldSelector: `metadata.name=${name}`,
      project: nameOnly,
      onChange: () => o.onChange(object),
      log: o.log,
    });
  };
  return {
    follow(objects) {
      for (const [object, view] of views) {
        if (objects.has(object)) continue;
        views.delete(object);
        void view.stop();
      }
      for (const object of objects) {
        if (views.size >= MOST) return;
        if (parseObjectId(object).resource === secrets.plural && !views.has(object)) views.set(object, watch(object));
      }
    },
    versionOf(object) {
      const view = views.get(object);
      if (view?.hasSynced !== true) return undefined;
      const { namespace, name } = parseObjectId(object);
      return view.get(`${namespace}/${name}`)?.metadata.resourceVersion ?? '';
    },
    async stop() {
      await Promise.all([...views.values()].map((view) => view.stop()));
      views.clear();
    },
  };
}

function nameOnly(raw: unknown): Name {
  const { name, namespace, uid, resourceVersion } = (raw as Secret).metadata;
  return { metadata: { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) } };
}
