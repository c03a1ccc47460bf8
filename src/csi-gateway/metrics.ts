import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { csiMethodPaths } from '../csi/method-paths.ts';
import { codeName } from '../csi/status.ts';
import { inTreeNameOf } from '../volumes/migration/plugins.ts';

/** Why a call was not forwarded. */
export type RefusalReason =
  | 'caller'
  | 'method'
  | 'malformed'
  | 'too-large'
  | 'slow'
  | 'busy'
  | 'not-after'
  | 'deadline'
  | 'in-flight'
  | 'max-in-flight'
  | 'adaptive-limit'
  | 'driver-down'
  | 'draining';

const KNOWN_PATHS = new Set(csiMethodPaths);

/** A call that was sent to the driver and has ended. */
export interface CallSample {
  /** '' = its name is not known yet. */
  readonly driver: string;
  readonly path: string;
  readonly code: number;
  readonly seconds: number;
  /** Of a volume of an in-tree plug-in. */
  readonly migrated: boolean;
}

/** What the gateway counts. */
export interface GatewayMetrics {
  observeCall(call: CallSample): void;
  countRefusal(reason: RefusalReason): void;
  changeInFlight(change: 1 | -1): void;
  countDriverConnect(): void;
  setDriverReady(ready: boolean): void;
  /** Callers' connections. */
  changeConnections(change: 1 | -1): void;
  /** A connection was ended, or may not call. */
  countTurnedAway(reason: 'handshake' | 'name' | 'too-many'): void;
  /** What --adaptive-limit allows at present. */
  setAdaptiveLimit(path: string, limit: number): void;
}

/** The histogram of calls, with upstream's name, labels and buckets (spec 05 §2.1). The label
 * `migrated` is there for drivers that took over from an in-tree plug-in, and then on every call:
 * what was counted before the driver had told its name, and so without it, goes.
 * @returns counts a call */
function countCalls(registers: Registry[]): (call: CallSample) => void {
  const operations = new Histogram({
    name: 'csi_sidecar_operations_seconds',
    help: '[ALPHA] Time that calls to the CSI driver took, by method and gRPC status.',
    labelNames: ['driver_name', 'method_name', 'grpc_status_code', 'migrated'],
    buckets: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600],
    registers,
  });
  const nameless = new Map<string, Record<string, string>>();
  return ({ driver, path, code, seconds, migrated }) => {
    // With --allow-all a caller chooses the path; it must not choose the number of time series.
    const method = KNOWN_PATHS.has(path) ? path : 'other';
    const labels = {
      driver_name: driver === '' ? 'unknown-driver' : driver,
      method_name: method,
      grpc_status_code: codeName(code),
    };
    if (driver === '') nameless.set(`${method} ${code}`, labels);
    if (driver === '' || inTreeNameOf(driver) === undefined)
      return operations.observe(labels, seconds);
    for (const early of nameless.values()) operations.remove(early);
    nameless.clear();
    operations.observe({ ...labels, migrated: String(migrated) }, seconds);
  };
}

/** Registers the gateway's metrics. */
export function createGatewayMetrics(registry: Registry): GatewayMetrics {
  const registers = [registry];
  const observe = countCalls(registers);
  const refused = new Counter({
    name: 'sutler_gateway_refused_total',
    help: 'Calls that were answered without asking the driver, by reason.',
    labelNames: ['reason'],
    registers,
  });
  const inFlight = new Gauge({
    name: 'sutler_gateway_in_flight',
    help: 'Calls that the driver is working on.',
    registers,
  });
  const connects = new Counter({
    name: 'sutler_gateway_driver_connects_total',
    help: "Connections made to the driver's socket; more than one means that it came back after a loss.",
    registers,
  });
  const ready = new Gauge({
    name: 'sutler_gateway_driver_ready',
    help: '1 while the driver is connected and passes Probe.',
    registers,
  });
  const connections = new Gauge({
    name: 'sutler_gateway_connections',
    help: 'Connections of callers that are open.',
    registers,
  });
  const turnedAway = new Counter({
    name: 'sutler_gateway_callers_turned_away_total',
    help: 'Connections that were ended or may not call, by reason: TLS handshake failed, name not allowed, too many connections or calls that wait.',
    labelNames: ['reason'],
    registers,
  });
  const adaptiveLimit = new Gauge({
    name: 'sutler_gateway_adaptive_limit',
    help: 'Calls of a method that --adaptive-limit lets be under way at once at present.',
    labelNames: ['method_name'],
    registers,
  });
  return {
    observeCall,
    countRefusal: (reason) => refused.inc({ reason }),
    changeInFlight: (change) => inFlight.inc(change),
    countDriverConnect: () => connects.inc(),
    setDriverReady: (isReady) => ready.set(isReady ? 1 : 0),
    changeConnections: (change) => connections.inc(change),
    countTurnedAway: (reason) => turnedAway.inc({ reason }),
    setAdaptiveLimit: (path, limit) => adaptiveLimit.set({ method_name: path }, limit),
  };
}
