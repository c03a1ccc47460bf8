import { perDriver } from '../runtime/flags.ts';

/** Flags that limit what all workers together do for a driver; ingest stores the limits. */
export const limitFlags = perDriver({
  'max-jobs-in-flight': {
    type: 'int',
    default: 0,
    min: 0,
    help:
      'How many claims all workers together work on at once. Volumes have the same limit. ' +
      '0: no limit.',
  },
  'max-jobs-per-second': {
    type: 'int',
    default: 0,
    min: 0,
    help:
      'How many claims all workers together begin to work on in a second. Volumes have the same ' +
      'limit. 0: no limit.',
  },
});

/** Delays after failures of jobs and of capacity refreshes. */
export const retryFlags = perDriver({
  'retry-interval-start': {
    type: 'durationMs',
    default: '1s',
    min: '1ms',
    help: 'Delay after the first failure; doubles after each further one. Varies by up to a quarter.',
    upstream: 'same',
  },
  'retry-interval-max': {
    type: 'durationMs',
    default: '5m',
    min: '1ms',
    help: 'Longest delay after a failure; it varies by up to a quarter.',
    upstream: 'same',
  },
});
