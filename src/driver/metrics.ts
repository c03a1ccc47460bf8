import { codeName } from '../csi/status.ts';
import { inTreeNameOf } from '../migration/plugins.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';

/** Why a call was not forwarded. */
export type RefusalReason =
  | 'caller'
  | 'method'
  | 'malformed'
  | 'too-large'
  | 'not-after'
  | 'other-pod'
  | 'deadline'
  | 'in-flight'
  | 'max-in-flight'
  | 'driver-down'
  | 'draining';

/** A call that was sent to the driver and has ended. */
export interface CallSample {
  /** The driver's name; '' while it is not known. */
  readonly driver: string;
  readonly path: string;
  readonly code: number;
  readonly seconds: number;
  /** Whether the volume comes from an in-tree plug-in. */
  readonly migrated: boolean;
}

export type DriverMetrics = ReturnType<typeof createDriverMetrics>;

/** Registers the histogram of calls, with the name, labels and buckets of csi-lib-utils
 * metrics/metrics.go. For a driver that replaces an in-tree plug-in, every series has the label
 * `migrated`: series from before the driver's name was known are removed.
 * @returns a function that observes a call */
function registerCallHistogram(registry: Registry): (call: CallSample) => void {
  const operations = metricsIn(registry).histogram(
    'csi_sidecar_operations_seconds',
    '[ALPHA] Time that calls to the CSI driver took, by method and gRPC status.',
    {
      labelNames: ['driver_name', 'method_name', 'grpc_status_code', 'migrated'],
      buckets: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600],
    },
  );
  const nameless = new Map<string, Record<string, string>>();
  return ({ driver, path, code, seconds, migrated }) => {
    const labels = {
      driver_name: driver === '' ? 'unknown-driver' : driver,
      method_name: path,
      grpc_status_code: codeName(code),
    };
    if (driver === '') nameless.set(`${path} ${code}`, labels);
    if (inTreeNameOf(driver) === undefined) return operations.observe(labels, seconds);
    for (const early of nameless.values()) operations.remove(early);
    nameless.clear();
    operations.observe({ ...labels, migrated: String(migrated) }, seconds);
  };
}

/** Registers the gateway's metrics.
 * @returns the functions that change them */
export function createDriverMetrics(registry: Registry) {
  const { counter, gauge } = metricsIn(registry);
  const refused = counter(
    'sutler_gateway_refused_total',
    'Calls refused and not sent to the driver, by reason.',
    ['reason'],
  );
  const inFlight = gauge('sutler_gateway_in_flight', 'Calls that the driver is working on.', []);
  const connects = counter(
    'sutler_gateway_driver_connects_total',
    "Connections made to the driver's socket; above 1, a connection was lost.",
    [],
  );
  const ready = gauge(
    'sutler_gateway_driver_ready',
    '1 while the driver is connected and passes Probe.',
    [],
  );
  const connections = gauge('sutler_gateway_connections', 'Open connections of callers.', []);
  return {
    observeCall: registerCallHistogram(registry),
    countRefusal: (reason: RefusalReason) => refused.inc({ reason }),
    changeInFlight: (change: 1 | -1) => inFlight.inc(change),
    countDriverConnect: () => connects.inc(),
    setDriverReady: (isReady: boolean) => ready.set(isReady ? 1 : 0),
    changeConnections: (change: 1 | -1) => connections.inc(change),
  };
}
