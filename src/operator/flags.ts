import { driverConfigFlags } from '../driver-config/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { kubeFlags } from '../kube/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags } from '../runtime/flags.ts';
import { logFlags } from '../runtime/process-flags.ts';

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
  why: { type: 'string', default: '', help: 'Reason, which is kept in Redis.' },
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
    'the driver does not list, and open volume records; deletes nothing',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...redisFlags,
    ...gatewayClientFlags,
    ...driverConfigFlags,
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
        'the driver does not list a volume that a PersistentVolume names, a record waits for an ' +
        `operator, no sutler serves the driver, ${UNREACHABLE}`,
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
  ...redisFlags,
  'redis-url': {
    ...redisFlags['redis-url'],
    default: '',
    help:
      'Redis of the installation. Empty: the own one of a sutler all on this machine, as in its ' +
      'container.',
  },
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
    namespace: {
      type: 'string',
      default: 'default',
      short: 'n',
      help: 'Namespace of a claim that is given by its name alone.',
    },
  }),
  command: {
    word: '[NAMESPACE/]CLAIM',
    exits: {
      0: 'the claim is explained',
      1: `there is no such claim, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: ['default/data', 'data -n default -o yaml', 'default/data --watch'],
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
    'drops the open volume record of a claim UID although its volume may exist, ' +
    'and keeps in Redis who dropped it and why',
  flags: defineFlags({ ...commandFlags, ...redisFlags, ...driverFlags, ...whyFlags }),
  command: {
    word: 'UID',
    exits: {
      0: 'the record was dropped',
      1: `there is no such record, it is closed, a run owns it, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: [
      "3f1c5a52-0c7e-4a52-9a68-0d1c6c0a7c11 --why='the array was replaced'",
      '3f1c5a52-0c7e-4a52-9a68-0d1c6c0a7c11 --driver-name=nfs.csi.k8s.io --why=moved -o json',
    ],
  },
};

/** `sutler migrate`. */
export const migrate = {
  summary:
    'writes the manifests of a driver with the gateway in the place of external-provisioner, and ' +
    'says what becomes of its arguments; with --check, what stands in the way; with --back, the ' +
    'steps back; changes nothing in the cluster',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...redisFlags,
    ...gatewayClientFlags,
    'redis-url': {
      ...redisFlags['redis-url'],
      default: '',
      help: 'Redis that --check and --back look at. Empty: none.',
    },
    gateway: {
      ...gatewayClientFlags.gateway,
      default: '',
      help: 'Gateways that --check asks for the driver; or name --gateway-service. Empty: none.',
    },
    check: {
      type: 'bool',
      default: false,
      help: 'Write nothing; say what stands in the way of the migration, and what mends it.',
    },
    back: {
      type: 'bool',
      default: false,
      help: 'Write nothing; say how external-provisioner comes back by the folder that is named.',
    },
    namespace: {
      type: 'string',
      default: '',
      short: 'n',
      help: 'Namespace of the workload, and of manifests that name none. Empty: default.',
    },
    out: {
      type: 'string',
      default: 'sutler-migration',
      help: 'Folder that is written; it must not have such files yet.',
    },
    image: { type: 'string', default: '', help: 'Image of the gateway. Empty: sutler:VERSION.' },
    'driver-name': {
      type: 'string',
      default: '',
      help: 'Name of the driver. Empty: that of the only CSIDriver in the manifests.',
    },
  }),
  command: {
    word: 'WORKLOAD|FILE|-|FOLDER',
    exits: {
      0: 'the folder was written; with --check, nothing stands in the way',
      1: `with --check, something stands in the way; ${UNREACHABLE}`,
      2: 'nothing fits, or a flag or argument is wrong; nothing was written',
    },
    examples: [
      'deployment/ebs-csi-controller -n kube-system --driver-name=ebs.csi.aws.com',
      'manifests.yaml --driver-name=nfs.csi.k8s.io --out=nfs',
      '- -n storage --driver-name=rbd.csi.ceph.com < rendered.yaml',
      '--check deployment/ebs-csi-controller -n kube-system --driver-name=ebs.csi.aws.com',
      '--back sutler-migration',
    ],
  },
};

/** `sutler drain`. */
export const drain = {
  summary:
    'has sutler finish its open volume records of a driver and start nothing new, ' +
    'and says when it can be taken out',
  flags: defineFlags({
    ...commandFlags,
    ...redisFlags,
    ...driverFlags,
    wait: {
      type: 'bool',
      default: false,
      help: 'Wait until no volume record is open, and print each change of their number.',
    },
    'wait-limit': { type: 'durationMs', default: '10m', min: '0s', help: 'Longest --wait.' },
    undo: { type: 'bool', default: false, help: 'End the drain: new work may start again.' },
  }),
  command: {
    exits: {
      0: 'no volume record is open; with --undo, there is no drain any more',
      1: `volume records are open, no sutler serves the driver, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: ['--wait', '--driver-name=nfs.csi.k8s.io --wait --wait-limit=1h', '--undo'],
  },
};

/** `sutler uninstall`. */
export const uninstall = {
  summary:
    'removes what one installation of sutler left in the cluster and in Redis, if it has ended ' +
    'and no volume record is open; volumes and PersistentVolumes stay as they are',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...redisFlags,
    'leader-election-namespace': {
      ...electionFlags['leader-election-namespace'],
      help: 'Namespace of the Leases. Empty: all namespaces.',
    },
    ...yesFlags,
  }),
  command: {
    exits: {
      0: 'it was removed; without --yes, it can be',
      1: `sutler is still at work, volume records are open, ${UNREACHABLE}; nothing was removed`,
      2: WRONG_USE,
    },
    examples: ['', '--yes', '--redis-prefix=csi2 --yes'],
  },
};

/** `sutler abandon`. */
export const abandon = {
  summary:
    'ends what waits for a node that is gone for good, with --node-deployment: open volume ' +
    'records, and PersistentVolumes of its volumes whose claims are gone',
  flags: defineFlags({
    ...commandFlags,
    ...kubeFlags,
    ...redisFlags,
    'gateway-service': gatewayClientFlags['gateway-service'],
    ...driverFlags,
    ...whyFlags,
    ...yesFlags,
  }),
  command: {
    word: 'NODE',
    exits: {
      0: 'it was removed; without --yes, it can be',
      1: `nothing waits for the node, it is still there, a run owns a record, ${UNREACHABLE}`,
      2: WRONG_USE,
    },
    examples: ['node-7', "node-7 --why='its disks are destroyed' --yes"],
  },
};
