import { defineFlags } from '../runtime/flags.ts';

/** How a process reaches Redis. */
export const redisFlags = defineFlags({
  'redis-url': {
    type: 'string',
    default: 'redis://127.0.0.1:6379',
    env: 'REDIS_URL',
    help:
      'Redis that holds queues and volume records: redis://[user:password@]host:port/db, ' +
      'rediss:// with TLS.',
  },
  'redis-prefix': {
    type: 'string',
    default: 'csi',
    help: 'First part of all keys, in braces; one per installation that shares a Redis.',
  },
});
