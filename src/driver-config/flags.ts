import { defineFlags } from '../runtime/flags.ts';

/** The flag of processes that can serve several drivers. */
export const driverConfigFlags = defineFlags({
  'driver-config': {
    type: 'string',
    default: '',
    help:
      'YAML file with a section for each driver that this process serves. Its keys are flags. ' +
      'A flag on the command line is the default for all drivers. The file is read at the ' +
      'start. Empty: one driver, set up by flags alone.',
  },
});
