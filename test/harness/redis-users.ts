import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';

// Tests run from dist-dev/test/harness.
const FILE = fileURLToPath(new URL('../../../k8s/redis/users.acl', import.meta.url));

/** The users of k8s/redis/users.acl. */
export type RedisUser = 'ingest' | 'jobs' | 'all' | 'dashboard' | 'promoter' | 'operator';

/** Password of all of them in tests. */
const USER_PASSWORD = 'password-of-a-user';

/** Lines of redis.conf that create the users of k8s/redis/users.acl, for keys with this prefix. */
export function redisUsers(prefix = 'csi'): readonly string[] {
  return readFileSync(FILE, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('user sutler-'))
    .map((line) =>
      line.replace(' on ', ` on >${USER_PASSWORD} `).replaceAll('{csi}', `{${prefix}}`),
    );
}

/** The URL with the login of a user. */
export function urlOf(user: RedisUser, url: string): string {
  const login = new URL(url);
  login.username = `sutler-${user}`;
  login.password = USER_PASSWORD;
  return login.href;
}

/** The commands that Redis denied since the last call, by user. */
export async function denials(redis: Redis): Promise<readonly string[]> {
  const entries = (await redis.call('ACL', 'LOG')) as readonly (readonly unknown[])[];
  await redis.call('ACL', 'LOG', 'RESET');
  const field = (entry: readonly unknown[], name: string): string =>
    String(entry[entry.indexOf(name) + 1]);
  return entries.map((entry) =>
    ['username', 'reason', 'context', 'object'].map((name) => field(entry, name)).join(' '),
  );
}

/** To be called when the processes of a bed have ended.
 * @throws AssertionError if Redis denied one of their users a command */
export async function assertNothingDenied(redis: Redis): Promise<void> {
  if (redis.status === 'ready') assert.deepEqual(await denials(redis), []);
}
