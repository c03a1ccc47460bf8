/** gRPC status codes by their Go names, as upstream's events, logs and metrics spell them.
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

/** A code's Go name. */
export type CodeName = keyof typeof Code;

const NAMES: readonly string[] = Object.keys(Code);

/** 8 → "ResourceExhausted"; a number gRPC does not know → "Code(17)", as Go prints it. */
export function codeName(code: number): string {
  return NAMES[code] ?? `Code(${code})`;
}

/** Trailer of the gateway: this status came from the driver itself. */
export const DRIVER_STATUS_TRAILER = 'sutler-driver-status';
/** Trailer of the gateway: nothing was sent to the driver. */
export const NOT_FORWARDED_TRAILER = 'sutler-not-forwarded';
/** Trailer of the gateway: it is shutting down and forwards nothing more; its value is the number
 * of volumes whose calls are still under way. */
export const DRAINING_TRAILER = 'sutler-draining';
/** Request metadata: the caller chooses between gateways. One that shuts down stays until it has
 * told such callers that it is drained. */
export const FAILOVER_METADATA = 'sutler-electing';
/** Request metadata: absolute Unix time in milliseconds past which the gateway does not forward. */
export const NOT_AFTER_METADATA = 'sutler-not-after';

/** Request metadata, "true" or "false": the volume is stored in the form of an in-tree plug-in. A
 * label of the gateway's metrics, nothing more. */
export const MIGRATED_METADATA = 'sutler-migrated';

/** What Go's context says when a deadline has passed; events show it, so operators search for it.
 */
export const DEADLINE_DETAILS = 'context deadline exceeded';
/** What Go's context says when a caller gave up. */
export const CANCELED_DETAILS = 'context canceled';

/** A CSI call that did not end with OK. `message` reads as upstream's: `rpc error: code =
 * ResourceExhausted desc = pool is full`. Neither `driverSaid` nor `notForwarded` = ambiguous: the
 * driver may or may not have acted. They are never both true. */
export class CsiError extends Error {
  override readonly name = 'CsiError';
  /** gRPC code. */
  readonly code: number;
  /** Go's name of the code. */
  readonly codeName: string;
  /** The words of whoever made the status. */
  readonly details: string;
  /** The driver itself answered so (gateway's word for it). Never true when the client dials a
   * driver without a gateway. */
  readonly driverSaid: boolean;
  /** The driver was not asked: nothing was sent. */
  readonly notForwarded: boolean;
  /** The gateway is shutting down: volumes whose calls are still under way there. Undefined when it
   * is not, or did not say. */
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
    this.draining = status.draining;
    this.method = status.method;
  }
}

/** The facts of a CsiError. */
export interface CsiStatus {
  readonly code: number;
  readonly details: string;
  readonly method: string;
  readonly driverSaid?: boolean;
  readonly notForwarded?: boolean;
  readonly draining?: number;
}

/** The error of a call of which not one byte was sent. */
export function notSent(method: string, code: number, details: string, cause?: unknown): CsiError {
  return new CsiError(
    { code, details, method, notForwarded: true },
    cause === undefined ? {} : { cause },
  );
}
