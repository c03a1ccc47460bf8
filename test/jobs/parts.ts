import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Rig } from './rig.ts';

/** The API server with some of its calls replaced. */
export function kubeWith(
  { kube }: Pick<Rig, 'kube'>,
  change: Partial<Dependencies['kube']>,
): Pick<Dependencies, 'kube'> {
  return {
    kube: {
      get: (...args) => kube.get(...args),
      list: (...args) => kube.list(...args),
      create: (...args) => kube.create(...args),
      patch: (...args) => kube.patch(...args),
      update: (...args) => kube.update(...args),
      delete: (...args) => kube.delete(...args),
      ...change,
    },
  };
}
