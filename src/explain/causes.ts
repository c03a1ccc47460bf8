import type { RunStatus } from '../queue/status.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { type DriverState, hasWorker, leaderOf } from './driver-state.ts';

/** Who can end a wait. `nobody`: it goes on by itself. */
export type Actor = 'nobody' | 'user' | 'administrator' | 'driver vendor';

/** Why a claim or volume is not done. */
export interface Cause {
  /** For metrics and filters: a gRPC code, or one of the names below. */
  readonly name: string;
  /** One sentence: what it waits for, or what failed. */
  readonly sentence: string;
  /** It goes on by itself: nothing is wrong. */
  readonly isFine: boolean;
  readonly actor: Actor;
  /** What that one does. */
  readonly step: string;
}

type Advice = readonly [actor: Actor, step: string];

const DRIVER_LOG: Advice = ['driver vendor', 'see the log of the CSI driver for this volume name'];

/** By gRPC code. */
const CODES: Readonly<Record<string, Advice>> = {
  InvalidArgument: [
    'administrator',
    'correct the parameters of the StorageClass (delete it and create it again), or the claim',
  ],
  NotFound: ['user', 'check that the source of the claim and what its class names exist'],
  AlreadyExists: [
    'administrator',
    'a volume of this name with other properties exists in the storage: compare, then delete it',
  ],
  PermissionDenied: ['administrator', 'correct the driver’s credentials, or what they may do'],
  Unauthenticated: ['administrator', 'correct the driver’s credentials'],
  ResourceExhausted: ['administrator', 'free or add capacity, or raise the quota of the storage'],
  FailedPrecondition: ['administrator', 'bring the storage into the state that the driver names'],
  OutOfRange: ['user', 'ask for a size that the driver supports'],
  Unimplemented: ['administrator', 'ask only for what this driver supports'],
  DeadlineExceeded: ['nobody', 'the driver is slow: its call is repeated until it ends'],
  Aborted: ['nobody', 'the driver works on this volume already: it is asked again'],
  Canceled: ['nobody', 'the call is repeated'],
  Unavailable: ['administrator', 'see why the driver or its storage can’t be reached'],
};

/** By the resource that a key waits for: name of the cause, who acts, and how. */
const OBJECTS: Readonly<Record<string, readonly [name: string, advice: Advice]>> = {
  secrets: ['Secret', ['administrator', 'create or correct the Secret']],
  storageclasses: ['Class', ['administrator', 'create or correct the StorageClass']],
  volumesnapshots: ['Source', ['user', 'create the VolumeSnapshot, or wait until it is ready']],
  volumesnapshotcontents: ['Source', ['user', 'wait until the VolumeSnapshot is ready']],
  persistentvolumeclaims: [
    'Source',
    ['user', 'create the claim to clone, or wait until it is Bound'],
  ],
  persistentvolumes: ['Volume', ['administrator', 'look at the PersistentVolume']],
  volumeattachments: ['Attached', ['user', 'end what uses the volume, so that it is detached']],
  nodes: ['Nodes', ['administrator', 'see that the driver is registered on a node that fits']],
  csinodes: ['Nodes', ['administrator', 'see that the driver is registered on a node that fits']],
};

/** Why none of the driver's claims is worked on; undefined if they are.
 * @param isSoftState  a loss of Redis' data keeps only claims waiting that were begun */
export function driverCause(
  state: DriverState,
  nowMs: number,
  isSoftState = false,
): Cause | undefined {
  const { driver, drain, otherProvisioner: other, quarantineMs, isConfirmed } = state;
  if (other !== undefined)
    return wrong('OtherProvisioner', `${other} holds the Lease of driver ${driver}`, [
      'administrator',
      'stop that provisioner, if sutler is to work in its place',
    ]);
  if (leaderOf(state) === undefined || !isConfirmed)
    return wrong('NoLeader', `no ingest leads driver ${driver} and has confirmed Redis’ data`, [
      'administrator',
      'start ingest; its /readyz says what it waits for',
    ]);
  if (drain !== undefined)
    return wrong('Drained', `drained by ${drain.by} since ${isoTime(drain.atMs)}`, [
      'administrator',
      `run: sutler drain --driver-name=${driver} --undo`,
    ]);
  const until = isoTime(nowMs + quarantineMs);
  if (quarantineMs > 0 && !isSoftState)
    return fine('Quarantine', `Redis lost data: nothing is begun before ${until}`, [
      'nobody',
      'it goes on when calls of before have ended',
    ]);
  return hasWorker(state)
    ? undefined
    : wrong('NoWorker', `no jobs process works for driver ${driver}`, [
        'administrator',
        'start jobs; its /readyz says what it waits for',
      ]);
}

/** Why a key whose run has ended is not done. */
export function statusCause(status: RunStatus): Cause {
  const { outcome, reason } = status;
  const code = codeIn(reason);
  if (outcome === 'later' && code === 'Unavailable')
    return wrong('Unreachable', `the driver can't be reached: ${reason}`, [
      'administrator',
      'start the driver and its gateway, or see why they do not answer',
    ]);
  if (code !== '') {
    const [actor, step] = CODES[code] ?? DRIVER_LOG;
    return { name: code, sentence: reason, isFine: actor === 'nobody', actor, step };
  }
  return limitCause(status) ?? objectCause(status) ?? causeWithoutCode(status);
}

/** Of what waits for its turn (jobs/in-turn.ts). */
function limitCause({ outcome, reason }: RunStatus): Cause | undefined {
  const [, limit] = /^class ".*\((sutler\.dev\/max-[a-z-]+)(?:: 0)?\)/.exec(reason) ?? [];
  if (outcome !== 'later' || limit === undefined) return undefined;
  return reason.endsWith(': 0)')
    ? wrong('Paused', reason, ['administrator', `remove or raise ${limit} of the StorageClass`])
    : fine('Limited', reason, ['nobody', 'it goes on when it is its turn']);
}

function objectCause({ reason, until }: RunStatus): Cause | undefined {
  for (const condition of until) {
    const known = OBJECTS[condition.resource];
    if (known !== undefined)
      return wrong(known[0], `${reason} (waits for ${nameOf(condition)})`, known[1]);
  }
  return undefined;
}

function causeWithoutCode({ outcome, reason }: RunStatus): Cause {
  if (outcome === 'later' || outcome === 'running')
    return fine('Later', reason, ['nobody', 'it is tried again by itself']);
  if (reason.startsWith('error getting secret'))
    return wrong('Secret', reason, [
      'administrator',
      'create the Secret, or grant sutler to read it',
    ]);
  if (/forbidden|denied/i.test(reason))
    return wrong('Forbidden', reason, [
      'administrator',
      'grant what is refused, or change the policy',
    ]);
  return wrong('Refused', reason, ['user', 'correct what the reason names']);
}

/** A key that has a job, which no run has ended yet. */
export const QUEUED: Cause = fine('Queued', 'it is about to be worked on', ['nobody', 'wait']);

/** The gRPC code that a reason names; '' for none. */
function codeIn(reason: string): string {
  return /\brpc error: code = (\w+)/.exec(reason)?.[1] ?? '';
}

function nameOf({ resource, namespace = '', name }: WaitCondition): string {
  const of = namespace === '' ? '' : `${namespace}/`;
  return name === '*' ? resource : `${resource} ${of}${name}`;
}

/** Somebody has to act. */
export function wrong(name: string, sentence: string, [actor, step]: Advice): Cause {
  return { name, sentence, isFine: false, actor, step };
}

/** It goes on by itself, or is as it should be. */
export function fine(name: string, sentence: string, [actor, step]: Advice): Cause {
  return { name, sentence, isFine: true, actor, step };
}

/** For people: to the second. */
export function isoTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
