import type { Metadata } from '@grpc/grpc-js';
import { codeName } from '#src/csi/status.ts';

/** A gRPC status that the driver answers with. */
export class DriverStatus extends Error {
  override readonly name = 'DriverStatus';
  readonly code: number;
  readonly details: string;
  readonly metadata: Metadata | undefined;

  constructor(code: number, details: string, metadata?: Metadata) {
    super(`${codeName(code)}: ${details}`);
    this.code = code;
    this.details = details;
    this.metadata = metadata;
  }
}
