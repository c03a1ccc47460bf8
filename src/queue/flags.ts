import { perDriver } from '../runtime/flags.ts';

/** Flags that limit what all workers together do for a driver; ingest stores the limits. */
export const limitFlags = perDriver({
  'max-jobs-in-flight': {
    type: 'int',
    default: 0,
    min: 0,
    isHot: true,
    help:
      'Claims that all workers together work on at once, and the same number of volumes; ' +
      '0: no limit.',
  },
  'max-jobs-per-second': {
    type: 'int',
    default: 0,
    min: 0,
    isHot: true,
    help:
      'Claims that all workers together begin to work on in a second, and the same number of ' +
      'volumes; 0: no limit.',
  },
});
