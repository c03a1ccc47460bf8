import type { Parts } from './parts.ts';
import type { Rig } from './rig.ts';

/** The API server with some of its calls replaced. */
export function kubeWith(
  { kube }: Pick<Rig, 'kube'>,
  change: Partial<Parts['kube']>,
): Pick<Parts, 'kube'> {
  return {
    kube: {
      get: (...args) => kube.get(...args),
      list: (...args) => kube.list(...args),
      createUnread: (...args) => kube.createUnread(...args),
      patch: (...args) => kube.patch(...args),
      update: (...args) => kube.update(...args),
      delete: (...args) => kube.delete(...args),
      ...change,
    },
  };
}
