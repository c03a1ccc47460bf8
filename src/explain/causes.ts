import { FULL_DETAILS, NOT_AFTER_METADATA } from '../csi/status.ts';
import { NO_CLASS, type PendingWhy } from './pending-index.ts';
import type { RunStatus } from '../queue/status.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { isoTime } from '../runtime/printable.ts';
import { type DriverState, leaderOf, workersOf } from './driver-state.ts';

/** Who can end a wait. `nobody`: it ends by itself. */
export type Actor = 'nobody' | 'user' | 'administrator' | 'driver vendor';

/** Why a claim or volume is not done. */
export interface Cause {
  /** For metrics and filters: a gRPC code, or another name of CAUSES. */
  readonly name: string;
  /** One sentence: what it waits for, or what failed. */
  readonly sentence: string;
  readonly isFine: boolean;
  readonly actor: Actor;
  /** What the actor does. */
  readonly step: string;
}

type Advice = readonly [actor: Actor, step: string];

/** Who acts, and how, by the cause's name. */
export const CAUSES = {
  // Causes of all claims of a driver.
  OtherProvisioner: ['administrator', 'stop that provisioner, if sutler should replace it'],
  NoLeader: ['administrator', 'see /readyz of ingest or sutler all; if none runs, start one'],
  Drained: ['administrator', 'end the drain: sutler drain --undo'],
  NoWorker: ['administrator', 'see /readyz of jobs or sutler all; if none runs, start one'],
  // Causes of a claim without a job.
  Lost: ['administrator', 'restore the PersistentVolume, or delete the claim'],
  Bound: ['nobody', 'it is done'],
  Binding: ['nobody', 'kube-controller-manager binds the two'],
  NoClass: ['user', 'name a class in the claim, or have the administrator mark one as the default'],
  ClassNotFound: ['user', 'name another class, or have the administrator create this one'],
  NoProvisioning: ['administrator', 'create a PersistentVolume that fits it'],
  OtherDriver: ['administrator', 'look at the provisioner of that driver'],
  WaitForFirstConsumer: ['user', 'create a pod with this claim; the scheduler then selects a node'],
  NotAnnotated: [
    'administrator',
    'wait 15 s, then check that kube-controller-manager runs, and that the claim’s class is right',
  ],
  // Causes of a claim or volume with a job.
  Queued: ['nobody', 'wait'],
  Running: ['nobody', 'wait until its call has ended'],
  Later: ['nobody', 'sutler tries again by itself'],
  InDoubt: ['nobody', 'after that time sutler deletes the volume, if nobody needs it'],
  NotPlannable: [
    'administrator',
    'restore what is missing, or look for the volume in the storage, then: sutler forget',
  ],
  Limited: ['nobody', 'wait until the limit allows it'],
  Paused: ['administrator', 'remove or raise sutler.dev/max-in-flight of the StorageClass'],
  Unreachable: ['administrator', 'start the driver, or see why it or its gateway does not answer'],
  Forbidden: ['administrator', 'grant the missing right, or change the policy'],
  Refused: ['user', 'correct what the reason names'],
  // Causes of a wait for an object.
  Secret: ['administrator', 'create the Secret, correct it, or grant sutler to read it'],
  Class: ['administrator', 'create or correct the StorageClass'],
  Source: ['user', 'create the source of its content, or wait until the source is ready'],
  Volume: ['administrator', 'look at the PersistentVolume'],
  Attached: ['user', 'delete the pods that use the volume, so that it is detached'],
  Nodes: ['administrator', 'register the driver on a node that fits'],
  // Codes of gRPC.
  InvalidArgument: [
    'administrator',
    'correct the parameters of the StorageClass (delete it and create it again), or the claim',
  ],
  NotFound: ['user', 'check that the source of the claim and what its class names exist'],
  AlreadyExists: [
    'administrator',
    'a volume of this name with other properties exists in the storage: compare, then delete it',
  ],
  PermissionDenied: ['administrator', 'correct the driver’s credentials, or their rights'],
  Unauthenticated: ['administrator', 'correct the driver’s credentials'],
  ResourceExhausted: ['administrator', 'free or add capacity, or raise the quota of the storage'],
  FailedPrecondition: ['administrator', 'bring the storage into the state that the driver names'],
  OutOfRange: ['user', 'ask for a size that the driver supports'],
  Unimplemented: ['administrator', 'ask only for what this driver supports'],
  DeadlineExceeded: ['nobody', 'the driver is slow: sutler repeats the call until it ends'],
  DriverSlow: ['administrator', 'raise --timeout, or see why the driver is slow'],
  Aborted: ['nobody', 'the driver is at work on this volume: sutler asks again'],
  Canceled: ['nobody', 'sutler repeats the call'],
  Unavailable: ['administrator', 'see why the driver or its storage can’t be reached'],
} as const satisfies Readonly<Record<string, Advice>>;

/** For any other code. */
const DRIVER_LOG: Advice = ['driver vendor', 'see the log of the CSI driver for this volume name'];

/** Nothing is wrong with these, although somebody has the next step. */
const IN_ORDER: readonly string[] = ['NoProvisioning', 'WaitForFirstConsumer'];

/** Makes a cause from its name.
 * @param step  if it depends on more than the name */
export function causeNamed(name: keyof typeof CAUSES, sentence: string, step?: string): Cause {
  const [actor, usual] = CAUSES[name];
  return causeOf(name, sentence, [actor, step ?? usual]);
}

function causeOf(name: string, sentence: string, [actor, step]: Advice): Cause {
  const isFine = actor === 'nobody' || IN_ORDER.includes(name);
  return { name, sentence, isFine, actor, step };
}

/** The cause of a wait for an object, by the object's resource. */
const OBJECTS: Readonly<Record<string, keyof typeof CAUSES>> = {
  secrets: 'Secret',
  storageclasses: 'Class',
  volumesnapshots: 'Source',
  volumesnapshotcontents: 'Source',
  persistentvolumeclaims: 'Source',
  persistentvolumes: 'Volume',
  volumeattachments: 'Attached',
  nodes: 'Nodes',
};

/** The command that retries an object at once.
 * @param object  "namespace/claim", or the volume's name */
export function retryCommand(object: string): string {
  return `sutler retry ${object}`;
}

/** Why sutler works on none of the driver's claims; undefined if it works. */
export function driverCause(state: DriverState): Cause | undefined {
  const { driver, drain, driverTrouble, otherProvisioner: other, isConfirmed } = state;
  if (other !== undefined)
    return causeNamed('OtherProvisioner', `${other} holds the Lease of driver ${driver}`);
  if (leaderOf(state) === undefined || !isConfirmed)
    return causeNamed('NoLeader', `no ingest leads driver ${driver}, or the leader has just begun`);
  if (drain !== undefined)
    return causeNamed(
      'Drained',
      `drained by ${drain.by} since ${isoTime(drain.atMs)}`,
      `run: sutler drain --driver-name=${driver} --undo`,
    );
  if (workersOf(state).length === 0)
    return causeNamed('NoWorker', `no jobs process works for driver ${driver}`);
  return driverTrouble === undefined ? undefined : causeNamed('Unreachable', driverTrouble);
}

/** Why a claim has no job. */
export function whyNoJob(why: Exclude<PendingWhy, ''>, className: string): Cause {
  if (why !== NO_CLASS)
    return causeNamed('NotAnnotated', 'kube-controller-manager has not asked for a volume yet');
  return className === ''
    ? causeNamed('NoClass', 'the claim names no StorageClass, and none is the default')
    : causeNamed('ClassNotFound', `StorageClass "${className}" does not exist`);
}

/** Part of the reason of a run whose job is in doubt (jobs/mark-job.ts). */
export const DOUBT = 'a call of an earlier run may still be at work in the driver';
/** The first words of the reason of a vanished claim that stays in the journal. */
export const VANISHED = 'the claim is gone, and a volume may exist for it';

/** The first words of the sentence of Unreachable; the run's reason follows. */
const UNREACHABLE = "the driver can't be reached: ";

/** The text of the event of Unreachable, the same whoever records it, so that there is one event.
 * @param reason  a run's reason, or the sentence of the cause */
export function unreachableEvent(reason: string): string {
  const [, step] = CAUSES.Unreachable;
  return `${reason.replace(UNREACHABLE, '')}; ${step}`;
}

/** Follows the message of a call that ended at its deadline, unless the driver may take that long.
 */
export function timeoutNote(timeoutMs: number): string {
  return ` (--timeout is ${Number((timeoutMs / 1_000).toFixed(3))}s)`;
}

/** After so many calls in a row that ended at their deadline somebody has to act. */
const MANY_DEADLINES = 3;

/** What to do about calls that end at their deadline; undefined: the calls may still succeed.
 * @param reason  with the timeoutNote
 * @param alike  how many runs in a row have ended so */
export function slowStep(reason: string, alike: number): string | undefined {
  const [, timeout] = /DeadlineExceeded.*\(--timeout is (\S+)\)$/s.exec(reason) ?? [];
  return timeout === undefined || alike < MANY_DEADLINES
    ? undefined
    : `raise --timeout (it is ${timeout}), or see why the driver is slow`;
}

/** Causes that Unreachable replaces. While the driver can't be reached, one run at a time tries it,
 * and the other keys keep an older cause. */
const UNTIL_UNREACHABLE: readonly string[] = [
  'Later',
  'DeadlineExceeded',
  'DriverSlow',
  'Aborted',
  'Canceled',
];

/** Chooses the cause of a key.
 * @param own  from its last run; undefined: none has ended
 * @param ofAll  of all keys of the driver; undefined if there is none */
export function prevailing(own: Cause | undefined, ofAll: Cause | undefined): Cause | undefined {
  if (ofAll?.name !== 'Unreachable') return ofAll ?? own;
  return own === undefined || UNTIL_UNREACHABLE.includes(own.name) ? ofAll : own;
}

/** Why a key whose run has ended is not done. */
export function statusCause(status: RunStatus): Cause {
  const { outcome, reason } = status;
  const [, code] = /\brpc error: code = (\w+)/.exec(reason) ?? [];
  // These have the codes Unavailable and Aborted, but the driver was not called.
  if (reason.includes(FULL_DETAILS) || reason.includes(NOT_AFTER_METADATA))
    return causeNamed('Later', reason);
  if (outcome === 'later' && code === 'Unavailable')
    return causeNamed('Unreachable', UNREACHABLE + reason);
  if (reason.includes(DOUBT)) return causeNamed('InDoubt', reason);
  if (reason.startsWith(VANISHED)) return causeNamed('NotPlannable', reason);
  if (code !== undefined) return codeCause(status, code);
  return limitCause(status) ?? objectCause(status) ?? causeWithoutCode(status);
}

/** The cause by the code of the driver's answer. */
function codeCause({ reason, alike }: RunStatus, code: string): Cause {
  const slow = slowStep(reason, alike);
  if (slow !== undefined) return causeNamed('DriverSlow', reason, slow);
  const advices: Readonly<Record<string, Advice>> = CAUSES;
  return causeOf(code, reason, advices[code] ?? DRIVER_LOG);
}

/** The cause of a wait for the limit of a class (jobs/class-limit.ts). */
function limitCause({ outcome, reason }: RunStatus): Cause | undefined {
  if (outcome !== 'later' || !/^class ".*\(sutler\.dev\/max-/.test(reason)) return undefined;
  return causeNamed(reason.endsWith(': 0)') ? 'Paused' : 'Limited', reason);
}

function objectCause({ reason, until }: RunStatus): Cause | undefined {
  const condition = until.find(({ resource }) => OBJECTS[resource] !== undefined);
  const name = condition && OBJECTS[condition.resource];
  return name && causeNamed(name, `${reason} (waits for ${nameOf(condition)})`);
}

function causeWithoutCode({ outcome, reason }: RunStatus): Cause {
  if (outcome === 'later' || outcome === 'running') return causeNamed('Later', reason);
  if (reason.startsWith('error getting secret')) return causeNamed('Secret', reason);
  return causeNamed(/forbidden|denied/i.test(reason) ? 'Forbidden' : 'Refused', reason);
}

function nameOf({ resource, namespace = '', name }: WaitCondition): string {
  const of = namespace === '' ? '' : `${namespace}/`;
  return name === '*' ? resource : `${resource} ${of}${name}`;
}
