import { defineFlags } from '../runtime/flags.ts';

/** The flag of processes that can serve several drivers. */
export const driverConfigFlags = defineFlags({
  'driver-config': {
    type: 'string',
    default: '',
    help:
      'YAML file with a section for each driver that this process serves, whose keys are flags. ' +
      'A flag that is given besides is the default for all drivers. The file is read at the ' +
      'start. Empty: one driver, by flags alone.',
  },
});
