/** gRPC status codes, by the Go names that upstream's events, logs and metrics use.
 * @see grpc/grpc doc/statuscodes.md for the numbers */
export const Code = {
  OK: 0,
  Canceled: 1,
  Unknown: 2,
  InvalidArgument: 3,
  DeadlineExceeded: 4,
  NotFound: 5,
  AlreadyExists: 6,
  PermissionDenied: 7,
  ResourceExhausted: 8,
  FailedPrecondition: 9,
  Aborted: 10,
  OutOfRange: 11,
  Unimplemented: 12,
  Internal: 13,
  Unavailable: 14,
  DataLoss: 15,
  Unauthenticated: 16,
} as const;

/** Go name of a code. */
export type CodeName = keyof typeof Code;

const NAMES: readonly string[] = Object.keys(Code);

/** Returns the Go name of a code: 8 → "ResourceExhausted". Formats a number that gRPC does not
 * define as Go does: 17 → "Code(17)". */
export function codeName(code: number): string {
  return NAMES[code] ?? `Code(${code})`;
}

/** Trailer set by the gateway: the status came from the driver itself. */
export const DRIVER_STATUS_TRAILER = 'sutler-driver-status';
/** Trailer set by the gateway: nothing was sent to the driver. */
export const NOT_FORWARDED_TRAILER = 'sutler-not-forwarded';
/** Trailer set by the gateway, with the one above: the driver can be reached, but the gateway is
 * full. The caller may repeat the call at once. */
export const FULL_TRAILER = 'sutler-full';
/** Trailer set by the gateway: it is draining and forwards no new calls. Its value is the number of
 * volumes that the driver may still be at work on. */
export const DRAINING_TRAILER = 'sutler-draining';
/** Trailer of every answer of the gateway: the Unix time of the answer, in milliseconds. */
export const TIME_TRAILER = 'sutler-time';
/** Request metadata: Unix ms, by the gateway's clock, after which it refuses the call. */
export const NOT_AFTER_METADATA = 'sutler-not-after';
/** Request metadata, "true" or "false": whether the volume comes from an in-tree plug-in. It only
 * sets a label of the gateway's metrics. */
export const MIGRATED_METADATA = 'sutler-migrated';
/** Request metadata: UID of the pod whose driver is meant. A gateway in another pod refuses the
 * call if it knows its own pod. */
export const POD_METADATA = 'sutler-pod';

/** The text of Go's context package for an expired deadline. Operators search events for it. */
export const DEADLINE_DETAILS = 'context deadline exceeded';
/** The text of Go's context package for a cancelled call. */
export const CANCELED_DETAILS = 'context canceled';
/** The details of a call that a full gateway does not forward begin with this. */
export const FULL_DETAILS = 'not forwarded, the gateway is full';
/** Details of a call that is not sent because NOT_AFTER_METADATA has passed. */
export const tooLateDetails = (lateMs: number): string =>
  `the driver was not called: this run was ${lateMs} ms too late (${NOT_AFTER_METADATA}); ` +
  'the next run calls it';

/** A CSI call that did not end with OK. `message` has upstream's form: `rpc error: code =
 * ResourceExhausted desc = pool is full`. If neither `driverSaid` nor `notForwarded` is true, the
 * error is ambiguous: the driver may or may not have acted. They are never both true. */
export class CsiError extends Error {
  override readonly name = 'CsiError';
  readonly code: number;
  /** Go's name of the code. */
  readonly codeName: string;
  /** Message of the status, without the code. */
  readonly details: string;
  /** The gateway confirms that the driver itself returned this status. Always false if the client
   * calls a driver without a gateway. */
  readonly driverSaid: boolean;
  /** Nothing was sent to the driver. */
  readonly notForwarded: boolean;
  /** The gateway was full: it did not forward the call, although the driver can be reached. */
  readonly isGatewayFull: boolean;
  /** Number of volumes that the driver of a draining gateway may be at work on; undefined if the
   * gateway is not draining. */
  readonly draining: number | undefined;
  /** Full method path, "/csi.v1.Controller/CreateVolume". */
  readonly method: string;

  constructor(status: CsiStatus, options?: ErrorOptions) {
    super(`rpc error: code = ${codeName(status.code)} desc = ${status.details}`, options);
    this.code = status.code;
    this.codeName = codeName(status.code);
    this.details = status.details;
    this.notForwarded = status.notForwarded ?? false;
    this.driverSaid = !this.notForwarded && (status.driverSaid ?? false);
    this.isGatewayFull = this.notForwarded && (status.isGatewayFull ?? false);
    this.draining = status.draining;
    this.method = status.method;
  }
}

const RUNNING = new Set(['Canceled', 'DeadlineExceeded', 'Aborted']);

/** Codes that prove nothing even if the driver itself sent them: the call may go on, or a volume
 * with other properties has the name. */
const NEVER_FINAL = new Set([...RUNNING, 'Unavailable', 'AlreadyExists']);

/** Whether the driver itself refused, which ends this call (invariant 5). After any other error of
 * a call that was sent, the driver may still be at work. */
export function isFinal({ codeName, driverSaid }: Pick<CsiError, 'codeName' | 'driverSaid'>) {
  return driverSaid && !NEVER_FINAL.has(codeName);
}

/** Whether the driver is probably still at work after a call with this code. */
export function isStillRunning(codeName: string): boolean {
  return RUNNING.has(codeName);
}

/** The fields from which a CsiError is made. */
type CsiStatus = Pick<CsiError, 'code' | 'details' | 'method'> &
  Partial<Pick<CsiError, 'driverSaid' | 'notForwarded' | 'isGatewayFull' | 'draining'>>;

/** Makes the error of a call that was not sent. */
export function createNotSentError(
  status: Pick<CsiStatus, 'method' | 'code' | 'details'>,
  cause?: unknown,
): CsiError {
  return new CsiError({ ...status, notForwarded: true }, cause === undefined ? {} : { cause });
}
