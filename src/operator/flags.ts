import { driverConfigFlags } from '../driver-config/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { processFlags } from '../runtime/process-flags.ts';

/** Summary and flags of `sutler audit`. */
export const audit = {
  summary:
    'lists volumes of the driver that no PersistentVolume names, and open volume records; ' +
    'deletes nothing',
  flags: defineFlags({
    ...processFlags,
    ...kubeFlags,
    ...redisFlags,
    ...gatewayClientFlags,
    ...driverConfigFlags,
    'driver-name': {
      type: 'string',
      default: '',
      help: 'The driver of --driver-config that is audited.',
    },
    'min-age': {
      type: 'durationMs',
      default: '1h',
      min: '0s',
      help:
        'A volume is reported when an audit at least this long ago found it ' +
        'without a PersistentVolume too.',
    },
    json: { type: 'bool', default: false, help: 'Print JSON.' },
  }),
};

/** Summary and flags of `sutler forget`. */
export const forget = {
  summary:
    'drops the volume record of a claim UID although its volume may exist, ' +
    'and keeps in Redis who dropped it and why',
  flags: defineFlags({
    ...processFlags,
    ...redisFlags,
    'driver-name': { type: 'string', default: '', help: 'Driver of the record.' },
    why: { type: 'string', default: '', help: 'Reason, which is kept in Redis.' },
  }),
};

/** Summary and flags of `sutler drain`. */
export const drain = {
  summary:
    'has sutler finish its open volume records of a driver and start nothing new, ' +
    'and says when it can be taken out',
  flags: defineFlags({
    ...processFlags,
    ...redisFlags,
    wait: {
      type: 'bool',
      default: false,
      help: 'Wait until no volume record is open, and print each change of their number.',
    },
    'wait-limit': { type: 'durationMs', default: '10m', min: '0s', help: 'Longest --wait.' },
    undo: { type: 'bool', default: false, help: 'End the drain: new work may start again.' },
  }),
};

/** Summary and flags of `sutler uninstall`. */
export const uninstall = {
  summary:
    'removes what sutler left in the cluster and in Redis, if no volume record is open; ' +
    'volumes and PersistentVolumes stay as they are',
  flags: defineFlags({
    ...processFlags,
    ...kubeFlags,
    ...redisFlags,
    'leader-election-namespace': electionFlags['leader-election-namespace'],
    yes: { type: 'bool', default: false, help: 'Remove it; without this flag, only list it.' },
  }),
};

/** Summary and flags of `sutler abandon`. */
export const abandon = {
  summary:
    'ends what waits for a node that is gone for good, with --node-deployment: open volume ' +
    'records, and PersistentVolumes of its volumes whose claims are gone',
  flags: defineFlags({
    ...processFlags,
    ...kubeFlags,
    ...redisFlags,
    'gateway-service': gatewayClientFlags['gateway-service'],
    'driver-name': { type: 'string', default: '', help: 'Driver of the record.' },
    why: { type: 'string', default: '', help: 'Reason, which is kept in Redis.' },
    yes: { type: 'bool', default: false, help: 'Remove it; without this flag, only list it.' },
  }),
};
