import type { Redis } from 'ioredis';
import { UsageError } from '../runtime/flags.ts';

/** The value of --redis-prefix unless given. */
export const DEFAULT_PREFIX = 'csi';

/** Which driver of which installation. */
export interface DriverPlace {
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
}

/** Where Redis has what is known of a driver. */
export interface RedisPlace extends DriverPlace {
  readonly redis: Redis;
}

/** What every key of an installation begins with: `{csi}`. The braces put all of them into one slot
 * of a Redis Cluster.
 * @throws UsageError for a prefix that could not be told from the rest of a key */
export function keyPrefix(prefix: string): string {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(prefix)) {
    throw new UsageError(
      `--redis-prefix=${prefix}: use 1 to 64 letters, digits, '.', '_' or '-' (braces are added)`,
    );
  }
  return `{${prefix}}`;
}

/** A key of one driver: what it is of, and the driver's name. */
export function driverKey({ prefix, driver }: DriverPlace, kind: string): string {
  return `${keyPrefix(prefix)}:${kind}:${driver}`;
}
