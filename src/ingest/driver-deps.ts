import type { DriverConnections } from '../connections/open-connections.ts';
import type { DriverContext } from '../driver-config/driver-set.ts';
import type { SoftState } from '../election/soft-state.ts';
import type { DriverInfo } from '../gateway-client/driver-watch.ts';
import type { EventRecorder } from '../kube/events.ts';
import type { flags } from './flags.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { ProvisioningPause } from './provisioning-pause.ts';

/** The context of one driver in ingest. */
export type Context = DriverContext<typeof flags>;

/** What ingest's parts of one driver are made of. It is there once the driver is known. */
export interface DriverDeps {
  readonly context: Context;
  readonly connections: DriverConnections;
  readonly driver: DriverInfo;
  /** The driver's Lease. */
  readonly lease: { readonly namespace: string; readonly name: string };
  readonly queue: LeaderOnlyQueue;
  readonly pause: ProvisioningPause;
  readonly events: EventRecorder;
  readonly softState: SoftState | undefined;
}
