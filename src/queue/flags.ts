import { defineFlags } from '../runtime/flags.ts';

/** What ingest watches on top of claims, volumes and classes; jobs has to know of it too. */
export const waitFlags = defineFlags({
  'watch-secrets': {
    type: 'bool',
    default: false,
    help: 'Watch a missing secret, by its name and only while something waits for it, and go on when it comes. Ingest needs list and watch on it. Without: tried again now and then.',
  },
});
