import type {
  Cluster,
  CsiDriver,
  Dependencies,
  RedisState,
  Reports,
  Settings,
} from '#src/jobs/dependencies.ts';
import type { Rig } from './rig.ts';

/** What runs work with, all at one level, so that a test replaces a part by its name alone. */
export type Parts = Cluster &
  CsiDriver &
  RedisState &
  Settings &
  Reports &
  Pick<Dependencies, 'lease' | 'journal' | 'openSources' | 'clock'>;

/** The same in its groups, as the processors take it. */
export function group(parts: Parts): Dependencies {
  const { lease, journal, openSources, clock } = parts;
  return {
    cluster: parts,
    driver: parts,
    redis: parts,
    settings: parts,
    reports: parts,
    lease,
    journal,
    openSources,
    clock,
  };
}

/** The API server with some of its calls replaced. */
export function kubeWith(
  { kube }: Pick<Rig, 'kube'>,
  change: Partial<Parts['kube']>,
): Pick<Parts, 'kube'> {
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
