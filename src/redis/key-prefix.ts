import type { Redis } from 'ioredis';
import { UsageError } from '../runtime/flags.ts';

/** Default of --redis-prefix. */
export const DEFAULT_PREFIX = 'csi';

/** A driver of an installation. */
export interface DriverPlace {
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
}

/** The data of a driver in Redis. */
export interface RedisPlace extends DriverPlace {
  readonly redis: Redis;
}

/** Returns the beginning of every key of an installation: `{csi}`. The braces put all keys into one
 * slot of a Redis Cluster.
 * @throws UsageError for a prefix that could not be told from the rest of a key */
export function keyPrefix(prefix: string): string {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(prefix)) {
    throw new UsageError(
      `--redis-prefix=${prefix}: use 1 to 64 letters, digits, '.', '_' or '-' (braces are added)`,
    );
  }
  return `{${prefix}}`;
}

/** Returns the key of one driver for one kind of data. */
export function driverKey({ prefix, driver }: DriverPlace, kind: string): string {
  return `${keyPrefix(prefix)}:${kind}:${driver}`;
}
