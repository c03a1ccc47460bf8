import { inGroup } from '../runtime/flags.ts';

/** Flags for TLS and logins. */
export const redisAccessFlags = inGroup('Redis', {
  'redis-tls-ca': {
    type: 'string',
    default: '',
    help:
      'PEM file with the authorities that sign the certificates of Redis and of its Sentinels. ' +
      'Empty: Node.js’s own list. Changed TLS files are used for the next connection.',
  },
  'redis-tls-cert': {
    type: 'string',
    default: '',
    help: 'PEM file with this process’s certificate for Redis, if Redis asks for one.',
  },
  'redis-tls-key': {
    type: 'string',
    default: '',
    help: 'PEM file with the private key of --redis-tls-cert.',
  },
  'redis-tls-server-name': {
    type: 'string',
    default: '',
    help:
      'Name or IP address that the certificates of Redis and of its Sentinels must contain. If ' +
      'empty, the host of --redis-url, and for a master the host that the Sentinels name.',
  },
  'redis-insecure': {
    type: 'bool',
    default: false,
    help:
      'Allow plaintext to a Redis beyond loopback. Anyone on the network path can then read the ' +
      'password, and change what Redis holds.',
  },
  'redis-sentinel-username': {
    type: 'string',
    default: '',
    env: 'REDIS_SENTINEL_USERNAME',
    help: 'User at the Sentinels. --redis-url has the user at Redis.',
  },
  'redis-sentinel-password': {
    type: 'string',
    default: '',
    env: 'REDIS_SENTINEL_PASSWORD',
    help:
      'Password at the Sentinels. --redis-url has the password at Redis. Set it by its ' +
      'variable: every user of the machine can read arguments.',
  },
  'redis-sentinel-plaintext': {
    type: 'bool',
    default: false,
    help:
      'With rediss-sentinel://: use TLS to Redis, but not to the Sentinels. Anyone on the ' +
      'network path can then read the Sentinels’ password.',
  },
});

/** All flags of a process that uses Redis. */
export const redisFlags = inGroup('Redis', {
  'redis-url': {
    type: 'string',
    default: 'redis://127.0.0.1:6379',
    env: 'REDIS_URL',
    help:
      'Redis that holds the queues: rediss://[user:password@]host:port/db with ' +
      'TLS, redis:// without, unix:///path, or ' +
      'rediss-sentinel://[user:password@]host:port,host:port/master-name. ' +
      'Set a URL with a password by its variable: every user of the machine can read arguments.',
  },
  'redis-prefix': {
    type: 'string',
    default: 'csi',
    help: 'First part of all keys, in braces; one per installation that shares a Redis.',
  },
  ...redisAccessFlags,
});
