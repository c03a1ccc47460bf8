import type {
  Cluster,
  CsiDriver,
  Dependencies,
  RedisState,
  Reports,
  Settings,
} from '#src/jobs/dependencies.ts';
import type { Clock } from '#src/runtime/clock.ts';

/** What runs work with, all at one level, so that a test replaces a part by its name alone. */
export type Parts = Cluster &
  CsiDriver &
  RedisState &
  Settings &
  Reports & { readonly clock: Clock };

/** The same in its groups, as the processors take it. */
export function group(parts: Parts): Dependencies {
  const { clock } = parts;
  return { cluster: parts, driver: parts, redis: parts, settings: parts, reports: parts, clock };
}
