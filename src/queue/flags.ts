import { defineFlags } from '../runtime/flags.ts';

/** What ingest watches on top of claims, volumes and classes; jobs has to know of it too. */
export const wakeFlags = defineFlags({
  'watch-secrets': {
    type: 'bool',
    default: false,
    help: 'Watch a missing secret, by its name and only while something waits for it, and go on when it comes. Ingest needs list and watch on it. Without: tried again now and then.',
  },
});

/** How a process reaches Redis. */
export const redisFlags = defineFlags({
  'redis-url': {
    type: 'string',
    default: 'redis://127.0.0.1:6379',
    env: 'REDIS_URL',
    help: 'Redis that holds queues and volume records: redis://[user:password@]host:port/db, rediss:// with TLS.',
  },
  'redis-prefix': { type: 'string', default: 'csi', help: 'First part of all keys, in braces; one per installation that shares a Redis.' },
});
