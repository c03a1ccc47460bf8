/** gRPC status codes by the Go names that upstream's events, logs and metrics use.
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

/** Go name of a code: 8 → "ResourceExhausted". A number that gRPC does not define is printed as Go
 * prints it: 17 → "Code(17)". */
export function codeName(code: number): string {
  return NAMES[code] ?? `Code(${code})`;
}

/** Trailer set by the gateway: the status came from the driver itself. */
export const DRIVER_STATUS_TRAILER = 'sutler-driver-status';
/** Trailer set by the gateway: nothing was sent to the driver. */
export const NOT_FORWARDED_TRAILER = 'sutler-not-forwarded';
/** Trailer set by the gateway, beside the one above: the driver can be reached, and only the
 * gateway has no room for the call now. The same call may be sent again at once. */
export const FULL_TRAILER = 'sutler-full';
/** Trailer set by the gateway: it is draining and forwards no new calls. The value is the number of
 * volumes that the driver may still be at work on. */
export const DRAINING_TRAILER = 'sutler-draining';
/** Trailer of every answer of the gateway: its Unix time in milliseconds as it answers. */
export const TIME_TRAILER = 'sutler-time';
/** Request metadata: Unix time in milliseconds, by the gateway's clock, after which it refuses the
 * call. */
export const NOT_AFTER_METADATA = 'sutler-not-after';
/** Request metadata, "true" or "false": whether the volume comes from an in-tree plug-in. It only
 * sets a label of the gateway's metrics. */
export const MIGRATED_METADATA = 'sutler-migrated';
/** Request metadata: the UID of the pod whose driver is meant. A gateway that knows that it is in
 * another one refuses the call. */
export const POD_METADATA = 'sutler-pod';

/** The text of Go's context package for an expired deadline. Operators search events for it. */
export const DEADLINE_DETAILS = 'context deadline exceeded';
/** The text of Go's context package for a cancelled call. */
export const CANCELED_DETAILS = 'context canceled';
/** What is said of a call that a full gateway does not forward begins with this. */
export const FULL_DETAILS = 'not forwarded, the gateway is full';
/** What is said of a call that is not sent after its NOT_AFTER_METADATA. */
export const tooLateDetails = (lateMs: number): string =>
  `the driver was not asked: this run was ${lateMs} ms too late (${NOT_AFTER_METADATA}), ` +
  'the next one asks it';

/** A CSI call that did not end with OK. `message` has upstream's form: `rpc error: code =
 * ResourceExhausted desc = pool is full`. At most one of `driverSaid` and `notForwarded` is true;
 * if neither is, the error is ambiguous: the driver may or may not have acted. */
export class CsiError extends Error {
  override readonly name = 'CsiError';
  readonly code: number;
  /** Go's name of the code. */
  readonly codeName: string;
  /** Message of the status, without the code. */
  readonly details: string;
  /** The gateway confirms that the driver itself returned this status. Never true when the client
   * calls a driver without a gateway. */
  readonly driverSaid: boolean;
  /** Nothing was sent to the driver. */
  readonly notForwarded: boolean;
  /** The gateway had no room for this call: not forwarded, although the driver can be reached. */
  readonly isGatewayFull: boolean;
  /** Number of volumes that the driver of a draining gateway may be at work on; undefined if the
   * gateway did not say that it is draining. */
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

/** Codes that prove nothing even if the driver itself sent them: the call goes on, or, of a
 * creation, a volume of another shape has the name. */
const NEVER_FINAL = new Set([...RUNNING, 'Unavailable', 'AlreadyExists']);

/** Whether the driver itself refused, so that this call is over (invariant 5). After any other
 * error of a call that was sent, the driver may still be at work. */
export function isFinal({ codeName, driverSaid }: Pick<CsiError, 'codeName' | 'driverSaid'>) {
  return driverSaid && !NEVER_FINAL.has(codeName);
}

/** Whether the driver is probably still at work after a call that ended with this code. */
export function isStillRunning(codeName: string): boolean {
  return RUNNING.has(codeName);
}

/** The facts from which a CsiError is made. */
type CsiStatus = Pick<CsiError, 'code' | 'details' | 'method'> &
  Partial<Pick<CsiError, 'driverSaid' | 'notForwarded' | 'isGatewayFull' | 'draining'>>;

/** The error of a call that was never sent. */
export function createNotSentError(
  status: Pick<CsiStatus, 'method' | 'code' | 'details'>,
  cause?: unknown,
): CsiError {
  return new CsiError({ ...status, notForwarded: true }, cause === undefined ? {} : { cause });
}
