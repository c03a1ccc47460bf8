import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

// Tests run from dist-dev/test/harness.
const FILE = fileURLToPath(new URL('../../../k8s/redis/users.acl', import.meta.url));

/** The users of k8s/redis/users.acl. */
export type RedisUser = 'ingest' | 'jobs' | 'dashboard' | 'promoter' | 'operator';

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
