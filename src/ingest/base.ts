import type { Connections } from '../connections/open-connections.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { ProcessContext } from '../runtime/process.ts';
import type { flags } from './flags.ts';
import type { LeaderGate } from './leader-gate.ts';

/** The process context of ingest. */
export type Context = ProcessContext<typeof flags>;

/** What the parts of ingest are made of. It is there once the driver is known. */
export interface Base {
  readonly context: Context;
  readonly connections: Connections;
  readonly driver: DriverInfo;
  /** The driver's Lease. */
  readonly lease: { readonly namespace: string; readonly name: string };
  readonly gate: LeaderGate;
}
