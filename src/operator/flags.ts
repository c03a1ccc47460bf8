import { driverConfigFlags } from '../driver-config/flags.ts';
import { gatewayClientFlags } from '../gateway-client/flags.ts';
import { electionFlags } from '../election/flags.ts';
import { ownNodeFlags } from '../election/own-node.ts';
import { kubeFlags } from '../kube/flags.ts';
import { redisFlags } from '../redis/flags.ts';
import { defineFlags, type FlagTable } from '../runtime/flags.ts';
import type { CommandHelp } from '../runtime/parse-flags.ts';
import { logFlags } from '../runtime/process-flags.ts';

/** Flags that every command has. */
export const commandFlags = defineFlags({
  ...logFlags,
  ...kubeFlags,
  ...redisFlags,
  output: {
    type: 'string',
    default: 'text',
    values: ['text', 'wide', 'json'],
    short: 'o',
    help: 'Format of the output; wide: text, in sutler status with every pending object.',
  },
  'redis-url': {
    ...redisFlags['redis-url'],
    default: '',
    help:
      'Redis of the installation. Empty: the Redis of the sutler all on this machine. In the ' +
      'container of sutler all a command also uses the other flags of that process.',
  },
  'leader-election-namespace': {
    ...electionFlags['leader-election-namespace'],
    help:
      'Namespace of the driver’s Lease and journal. Empty: the namespace that the leader has ' +
      'written to Redis; else POD_NAMESPACE, the service account’s, or default.',
  },
});

const driverFlags = defineFlags({
  'driver-name': {
    type: 'string',
    default: '',
    help:
      'The driver. Empty: all drivers of this Redis and --redis-prefix. Drain and forget need it ' +
      'if there are several drivers, audit with --driver-config.',
  },
});

/** Declares a command: its own flags and its help.
 * @param o.exits  what each exit status means; for 1 without the reasons that every command has */
function defineCommand<const N extends string, const T extends FlagTable>(
  o: CommandHelp & {
    readonly name: N;
    readonly summary: string;
    readonly flags: T;
    readonly exits: Readonly<Record<0 | 1, string>>;
  },
) {
  const { name, summary, flags, ...help } = o;
  const exits = {
    ...o.exits,
    1: `${o.exits[1]}, or Redis, the API server or the driver can’t be used`,
    2: 'a flag, its value or an argument is wrong or missing; nothing was changed',
  };
  const command: CommandHelp = { ...help, exits };
  return { name, summary, flags: defineFlags({ ...commandFlags, ...flags }), command };
}

/** `sutler audit`. */
export const audit = defineCommand({
  name: 'audit',
  summary:
    'lists volumes of the driver that no PersistentVolume names, PersistentVolumes whose volume ' +
    'the driver does not list, and claims in the journal; deletes nothing',
  flags: {
    ...gatewayClientFlags,
    ...driverConfigFlags,
    ...ownNodeFlags,
    ...driverFlags,
    'min-age': {
      type: 'durationMs',
      default: '1h',
      min: '0s',
      help:
        'A volume without a PersistentVolume counts as orphaned if an audit at least this long ' +
        'ago found none either. Before that it is listed as not named yet.',
    },
  },
  exits: {
    0: 'each volume has a PersistentVolume, or may still get one; no volume is missing',
    1:
      'the driver does not list a volume that a PersistentVolume names, a claim in the journal ' +
      'waits for an operator, no sutler serves the driver',
    3: 'volumes are orphaned, and nothing else is wrong',
  },
  examples: [
    '--gateway=unix:///run/sutler/gateway.sock',
    '--driver-config=drivers.yaml --driver-name=nfs.csi.k8s.io -o json',
  ],
});

/** `sutler explain`. */
export const explain = defineCommand({
  name: 'explain',
  summary: 'says why a claim is pending, who has to act, and how; changes nothing',
  flags: {
    namespace: {
      type: 'string',
      default: '',
      short: 'n',
      help: 'Namespace of claims that are named without one. Empty: default.',
    },
  },
  word: '[NAMESPACE/]CLAIM…',
  exits: { 0: 'the claims are explained', 1: 'there is no such claim' },
  examples: ['default/data', 'default/data shop/photos -o json', 'data -n default'],
});

/** `sutler retry`. */
export const retry = defineCommand({
  name: 'retry',
  summary: 'retries claims and deletions of volumes at once, whatever they wait for',
  flags: {
    ...driverFlags,
    class: { type: 'string', default: '', help: 'All claims of this class.' },
    cause: {
      type: 'string',
      default: '',
      help: 'All claims and volumes with this cause, as sutler status names it.',
    },
    all: { type: 'bool', default: false, help: 'Everything that is pending.' },
  },
  word: 'NAMESPACE/CLAIM|VOLUME…',
  exits: {
    0: 'all that can be retried is retried',
    1: 'a claim or volume that was named is not pending, or has no job',
  },
  examples: [
    'default/data',
    '--cause=Secret',
    '--class=fast --driver-name=nfs.csi.k8s.io',
    '--all',
  ],
});

/** `sutler status`. */
export const status = defineCommand({
  name: 'status',
  summary:
    'shows the state of drivers and processes, what is pending, and what is wrong; ' +
    'changes nothing',
  flags: driverFlags,
  exits: { 0: 'nothing is wrong', 1: 'somebody has to act' },
  examples: ['', '-o wide', '--driver-name=nfs.csi.k8s.io -o json'],
});

/** `sutler forget`. */
export const forget = defineCommand({
  name: 'forget',
  summary:
    'drops a claim from the journal although a volume may exist for it: after the claim is gone ' +
    'and can’t be planned, or after you have compared its volumes',
  flags: {
    ...driverFlags,
    why: { type: 'string', default: '', help: 'Your reason; ingest logs it.' },
  },
  word: 'UID',
  exits: {
    0: 'the entry was dropped',
    1: 'the journal has no such entry, a run is at work on it, nobody leads',
  },
  examples: [
    "3f1c5a52-0c7e-4a52-9a68-0d1c6c0a7c11 --why='the array was replaced'",
    '3f1c5a52-0c7e-4a52-9a68-0d1c6c0a7c11 --driver-name=nfs.csi.k8s.io --why=moved -o json',
  ],
});

/** `sutler drain`. */
export const drain = defineCommand({
  name: 'drain',
  summary:
    'lets sutler finish what it has begun for a driver and begin nothing new, ' +
    'and says when it can be removed',
  flags: {
    ...driverFlags,
    wait: {
      type: 'bool',
      default: false,
      help: 'Wait until nothing that was begun is left, or until interrupted.',
    },
    undo: { type: 'bool', default: false, help: 'End the drain, so that new work may begin.' },
  },
  exits: {
    0: 'nothing that was begun is left; with --undo, the drain has ended',
    1: 'something that was begun is left, no sutler serves the driver',
  },
  examples: ['--wait', '--driver-name=nfs.csi.k8s.io', '--undo'],
});

/** `sutler uninstall`. */
export const uninstall = defineCommand({
  name: 'uninstall',
  summary:
    'removes what an installation of sutler left in the cluster and in Redis, after it has ' +
    'finished what it had begun and was stopped; volumes and PersistentVolumes stay as they are',
  flags: {
    yes: { type: 'bool', default: false, help: 'Remove it. Without this flag, only list it.' },
  },
  exits: {
    0: 'it was removed; without --yes, it can be',
    1: 'sutler is still running, or has not finished what it had begun',
  },
  examples: ['', '--yes', '--redis-prefix=csi2 --yes'],
});
