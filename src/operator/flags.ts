import { driverConfigFlags } from '../driver-config/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { logFlags } from '../runtime/process-flags.ts';
import { ownNodeFlags } from '../election/own-node.ts';

/** How a command finds Redis. */
const ownRedisFlags = {
  ...redisFlags,
  'redis-url': {
    ...redisFlags['redis-url'],
    default: '',
    help:
      'Redis of the installation. Empty: the Redis of the sutler all on this machine. In the ' +
      'container of sutler all, a command takes over the other flags of that process, too.',
  },
};

/** Flags of every command. */
export const commandFlags = defineFlags({
  output: {
    type: 'string',
    default: 'text',
    values: ['text', 'wide', 'json', 'yaml'],
    short: 'o',
    help: 'Format of what is printed; wide: text with all that is pending, in sutler status.',
  },
  ...logFlags,
});

const driverFlags = defineFlags({
  'driver-name': {
    type: 'string',
    default: '',
    help: 'The driver. Empty: the only one that this Redis and --redis-prefix have.',
  },
});
const whyFlags = defineFlags({
  why: { type: 'string', default: '', help: 'Reason, which ingest logs.' },
});
/** Where the driver's Lease and its journal are. */
const leaseFlags = defineFlags({
  'leader-election-namespace': {
    ...electionFlags['leader-election-namespace'],
    help:
      'Namespace of the driver’s Lease. Empty: as its leader has told Redis; else POD_NAMESPACE, ' +
      'the service account’s, or default.',
  },
});
const yesFlags = defineFlags({
  yes: { type: 'bool', default: false, help: 'Remove it; without this flag, only list it.' },
});

const WRONG_USE = 'a flag, its value or an argument is wrong or missing; nothing was changed';
const UNREACHABLE = 'or Redis, the API server or the driver can’t be used';

/** `sutler audit`. */
export const audit = {
  summary:
    'lists volumes of the driver that no PersistentVolume names, PersistentVolumes whose volume ' +
    'the driver does not list, and claims in the journal; deletes nothing',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...ownRedisFlags,
    ...gatewayClientFlags,
    ...driverConfigFlags,
    ...ownNodeFlags,
    ...leaseFlags,
    'driver-name': {
      type: 'string',
      default: '',
      help: 'The driver that must answer; with --driver-config, the one that is audited.',
    },
    'min-age': {
      type: 'durationMs',
      default: '1h',
      min: '0s',
      help:
        'A volume without a PersistentVolume counts as orphaned when an audit at least this long ' +
        'ago found it so too; until then it is listed as not named yet.',
    },
  }),
  command: {
    exits: {
      0: 'each volume has a PersistentVolume, or may still get one, and the other way round',
      1:
        'the driver does not list a volume that a PersistentVolume names, a claim in the journal ' +
        `waits for an operator, no sutler serves the driver, ${UNREACHABLE}`,
      2: WRONG_USE,
      3: 'volumes are orphaned, and nothing else is amiss',
    },
    examples: [
      '--gateway=unix:///run/sutler/gateway.sock',
      '--driver-config=drivers.yaml --driver-name=nfs.csi.k8s.io -o json',
    ],
  },
};

/** Flags of the commands that only look. */
export const lookFlags = defineFlags({
  ...commandFlags,
  ...kubeFlags,
  ...ownRedisFlags,
  watch: {
    type: 'bool',
    default: false,
    short: 'w',
    help: 'Print it again whenever it changes, until interrupted.',
  },
});

/** `sutler explain`. */
export const explain = {
  summary: 'says why a claim is pending, who has to act, and how; changes nothing',
  flags: defineFlags({
    ...lookFlags,
    ...leaseFlags,
    namespace: {
      type: 'string',
      default: '',
      short: 'n',
      help: 'Namespace of claims that are given by their names alone. Empty: default.',
    },
  }),
  command: {
    word: '[NAMESPACE/]CLAIM…',
    exits: {
      0: 'the claims are explained',
      1: `there is no such claim, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: [
      'default/data',
      'default/data shop/photos -o yaml',
      'data -n default',
      'default/data --watch',
    ],
  },
};

/** `sutler retry`. */
export const retry = {
  summary:
    'has claims, and volumes that are to be deleted, tried again at once, whatever they wait for',
  flags: defineFlags({
    ...commandFlags,
    ...ownRedisFlags,
    'driver-name': { type: 'string', default: '', help: 'Only what waits for it. Empty: all.' },
    class: { type: 'string', default: '', help: 'All claims of this class.' },
    cause: {
      type: 'string',
      default: '',
      help: 'All claims and volumes with this cause, as sutler status names it.',
    },
    all: { type: 'bool', default: false, help: 'All that waits.' },
  }),
  command: {
    word: 'NAMESPACE/CLAIM|VOLUME…',
    exits: {
      0: 'all of it that can be tried is tried',
      1: `something that was named does not wait, or waits for no run, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: [
      'default/data',
      '--cause=Secret',
      '--class=fast --driver-name=nfs.csi.k8s.io',
      '--all',
    ],
  },
};

/** `sutler status`. */
export const status = {
  summary:
    'says what drivers, processes and queues do, what is pending, and what is wrong; ' +
    'changes nothing',
  flags: defineFlags({
    ...lookFlags,
    'driver-name': { type: 'string', default: '', help: 'The only driver to show. Empty: all.' },
  }),
  command: {
    exits: {
      0: 'nothing is wrong',
      1: `somebody has to act, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: ['', '-o wide', '--driver-name=nfs.csi.k8s.io -o json'],
  },
};

/** `sutler forget`. */
export const forget = {
  summary:
    'drops a claim from the journal although a volume may exist for it: one that is gone and ' +
    'can’t be planned any more, or whose volumes you have compared',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...ownRedisFlags,
    ...driverFlags,
    ...leaseFlags,
    ...whyFlags,
  }),
  command: {
    word: 'UID',
    exits: {
      0: 'the entry was dropped',
      1: `the journal has no such entry, a run is at work on it, nobody leads, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: [
      "3f1c5a52-0c7e-4a52-9a68-0d1c6c0a7c11 --why='the array was replaced'",
      '3f1c5a52-0c7e-4a52-9a68-0d1c6c0a7c11 --driver-name=nfs.csi.k8s.io --why=moved -o json',
    ],
  },
};

/** `sutler drain`. */
export const drain = {
  summary:
    'has sutler finish what it has begun for a driver and begin nothing new, ' +
    'and says when it can be taken out',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...ownRedisFlags,
    ...driverFlags,
    ...leaseFlags,
    wait: {
      type: 'bool',
      default: false,
      help: 'Wait until nothing that was begun is left, and print each change of the number.',
    },
    'wait-limit': { type: 'durationMs', default: '10m', min: '0s', help: 'Longest --wait.' },
    undo: { type: 'bool', default: false, help: 'End the drain: new work may start again.' },
  }),
  command: {
    exits: {
      0: 'nothing that was begun is left; with --undo, there is no drain any more',
      1: `something that was begun is left, no sutler serves the driver, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: ['--wait', '--driver-name=nfs.csi.k8s.io --wait --wait-limit=1h', '--undo'],
  },
};

/** `sutler uninstall`. */
export const uninstall = {
  summary:
    'removes what one installation of sutler left in the cluster and in Redis, if it has ended ' +
    'and nothing that it has begun is left; volumes and PersistentVolumes stay as they are',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...ownRedisFlags,
    'leader-election-namespace': {
      ...electionFlags['leader-election-namespace'],
      help: 'Namespace of the Leases. Empty: all namespaces.',
    },
    ...yesFlags,
  }),
  command: {
    exits: {
      0: 'it was removed; without --yes, it can be',
      1: `sutler is still at work, it has begun what is not finished, ${UNREACHABLE}; nothing was removed`,
      2: WRONG_USE,
    },
    examples: ['', '--yes', '--redis-prefix=csi2 --yes'],
  },
};
