import { Counter, Gauge, Histogram } from 'prom-client';
import type { Registry } from 'prom-client';
import { csiMethodPaths } from '../csi/method-paths.ts';
import { codeName } from '../csi/status.ts';

/** Why a call was not forwarded. */
export type Refusal =
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

/** What the gateway counts. */
export interface GatewayMetrics {
  /** A call that was sent to the driver has ended; driver '' = its name is not known yet. */
  observe(call: { readonly driver: string; readonly path: string; readonly code: number; readonly seconds: number }): void;
  refused(reason: Refusal): void;
  inFlight(change: 1 | -1): void;
  driverConnected(): void;
  driverReady(ready: boolean): void;
  /** Callers' connections. */
  connections(change: 1 | -1): void;
  /** A connection was ended, or may not call. */
  turnedAway(reason: 'handshake' | 'name' | 'too-many'): void;
  /** What --adaptive-limit allows at present. */
  adaptiveLimit(path: string, limit: number): void;
}

/** Registers the gateway's metrics; the call histogram has upstream's name, labels and buckets (spec 05 §2.1). */
export function createGatewayMetrics(registry: Registry): GatewayMetrics {
  const registers = [registry];
  const operations = new Histogram({
    name: 'csi_sidecar_operations_seconds',
    help: '[ALPHA] Time that calls to the CSI driver took, by method and gRPC status.',
    labelNames: ['driver_name', 'method_name', 'grpc_status_code'],
    buckets: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600],
    registers,
  });
  const refused = new Counter({
    name: 'sutler_gateway_refused_total',
    help: 'Calls that were answered without asking the driver, by reason.',
    labelNames: ['reason'],
    registers,
  });
  const inFlight = new Gauge({ name: 'sutler_gateway_in_flight', help: 'Calls that the driver is working on.', registers });
  const connects = new Counter({
    name: 'sutler_gateway_driver_connects_total',
    help: "Connections made to the driver's socket; more than one means that it came back after a loss.",
    registers,
  });
  const ready = new Gauge({ name: 'sutler_gateway_driver_ready', help: '1 while the driver is connected and passes Probe.', registers });
  const connections = new Gauge({ name: 'sutler_gateway_connections', help: 'Connections of callers that are open.', registers });
  const turnedAway = new Counter({
    name: 'sutler_gateway_callers_turned_away_total',
    help: 'Connections that were ended or may not call, by reason: TLS handshake failed, name not allowed, too many connections.',
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
    observe: ({ driver, path, code, seconds }) =>
      operations.observe(
        {
          driver_name: driver === '' ? 'unknown-driver' : driver,
          // With --allow-all a caller chooses the path; it must not choose the number of time series.
          method_name: KNOWN_PATHS.has(path) ? path : 'other',
          grpc_status_code: codeName(code),
        },
        seconds,
      ),
    refused: (reason) => refused.inc({ reason }),
    inFlight: (change) => inFlight.inc(change),
    driverConnected: () => connects.inc(),
    driverReady: (isReady) => ready.set(isReady ? 1 : 0),
    connections: (change) => connections.inc(change),
    turnedAway: (reason) => turnedAway.inc({ reason }),
    adaptiveLimit: (path, limit) => adaptiveLimit.set({ method_name: path }, limit),
  };
}
