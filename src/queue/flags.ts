import { perDriver } from '../runtime/flags.ts';

/** Flags about what parked keys wait for. Ingest watches by them, and jobs park by them. */
export const waitFlags = perDriver({
  'watch-secrets': {
    type: 'bool',
    default: false,
    help:
      'Watch a missing secret, by its name and only while a key waits for it, and run that key ' +
      'when the secret is created. Ingest needs list and watch on it. Without: retried with ' +
      'back-off.',
  },
});
