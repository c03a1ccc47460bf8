import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** `sutler audit`. */
export const audit = {
  summary:
    'lists volumes of the driver that no PersistentVolume names, and open records; deletes nothing',
  flags: defineFlags({
    ...processFlags,
    ...kubeFlags,
    ...redisFlags,
    ...gatewayClientFlags,
    'min-age': {
      type: 'durationMs',
      default: '1h',
      min: '0s',
      help: 'How long ago an earlier audit must have found a volume unknown before it is reported.',
    },
    json: { type: 'bool', default: false, help: 'Print JSON.' },
  }),
};

/** `sutler forget`. */
export const forget = {
  summary:
    'drops the volume record of a claim UID, although it is not known whether its volume exists; what was dropped is kept in a log',
  flags: defineFlags({
    ...processFlags,
    ...redisFlags,
    'driver-name': { type: 'string', default: '', help: 'Driver whose record it is.' },
    why: { type: 'string', default: '', help: 'Reason, for the log.' },
  }),
};

/** `sutler uninstall`. */
export const uninstall = {
  summary:
    'removes every mark of sutler from cluster and Redis, once no record is open; volumes and PersistentVolumes stay as they are',
  flags: defineFlags({
    ...processFlags,
    ...kubeFlags,
    ...redisFlags,
    'leader-election-namespace': electionFlags['leader-election-namespace'],
    yes: { type: 'bool', default: false, help: 'Do it; without, only say what would be done.' },
  }),
};
