import { Counter, Gauge } from 'prom-client';
import { parseAddress } from '#src/runtime/address.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { openHttpEndpoint } from '#src/runtime/http.ts';
import { runProcess, type Invocation } from '#src/runtime/process.ts';
import { flags, summary } from './flags.ts';
import { startSampleDriver } from './server.ts';

/** The sample driver as a process of its own. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, {
    name: 'sandbox-driver',
    summary,
    table: flags,
    start: async (context) => {
      const { flags: given, metrics, closers } = context;
      const address = parseAddress('csi-address', given.csiAddress);
      if (address.kind !== 'unix')
        throw new UsageError(
          `--csi-address ${given.csiAddress}: a driver listens on a unix socket; ` +
            'write /path/to/socket',
        );
      if (given.dataDir === '')
        throw new UsageError('--data-dir is missing: name a folder for the volumes');
      const calls = new Counter({
        name: 'sutler_sample_driver_calls_total',
        help: 'Calls to the sample driver, by method.',
        labelNames: ['method'],
        registers: [metrics],
      });
      const driver = await startSampleDriver({
        socket: address.path,
        dataDir: given.dataDir,
        name: given.driverName,
        nodeId: given.nodeId,
        delayMs: given.delayMs,
        capacityBytes: BigInt(given.capacityGib) * 1024n ** 3n,
        ...(given.mutableParameters.length === 0
          ? {}
          : { mutableParameters: given.mutableParameters }),
        // A block without a value: onCall's result would be the answer, and inc() returns one.
        onCall: ({ method }) => {
          calls.inc({ method });
        },
      });
      closers.add('driver', () => driver.close(given.delayMs + 1_000));
      const volumes: Gauge = new Gauge({
        name: 'sutler_sample_driver_volumes',
        help: 'Volumes that exist.',
        collect: () => volumes.set(driver.volumes().length),
        registers: [],
      });
      metrics.registerMetric(volumes);
      context.announce({
        socket: `unix://${driver.socket}`,
        driver: given.driverName,
        ...(await openHttpEndpoint(context)),
      });
    },
  });
}
