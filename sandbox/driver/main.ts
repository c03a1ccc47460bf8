import { parseAddress } from '#src/runtime/address.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { openHttpEndpoint } from '#src/runtime/http.ts';
import { runProcess, type Invocation } from '#src/runtime/process.ts';
import { flags as table, summary } from './flags.ts';
import { parsePools } from './pool-flag.ts';
import { startSampleDriver } from './server.ts';

/** `sutler sandbox-driver`: the sample driver. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, {
    name: 'sandbox-driver',
    summary,
    table,
    start: async (context) => {
      const { flags, closers } = context;
      const address = parseAddress('csi-address', flags.csiAddress);
      if (address.kind !== 'unix')
        throw new UsageError(
          `--csi-address ${flags.csiAddress}: a driver listens on a unix socket; ` +
            'write /path/to/socket',
        );
      if (flags.dataDir === '')
        throw new UsageError('--data-dir is missing: name a folder for the volumes');
      const pools = parsePools(flags.pool);
      if (pools.length > 0 && !pools.some(({ name }) => name === flags.nodeId))
        throw new UsageError(`--node-id ${flags.nodeId}: name one of the nodes of --pool`);
      const driver = await startSampleDriver({
        socket: address.path,
        dataDir: flags.dataDir,
        name: flags.driverName,
        nodeId: flags.nodeId,
        delayMs: flags.delayMs,
        capacityBytes: BigInt(flags.capacityGib) * 1024n ** 3n,
        ...(pools.length === 0 ? {} : { pools }),
        ...(flags.mutableParameters.length === 0
          ? {}
          : { mutableParameters: flags.mutableParameters }),
      });
      closers.add('driver', () => driver.close(flags.delayMs + 1_000));
      context.announce({
        socket: `unix://${driver.socket}`,
        driver: flags.driverName,
        ...(await openHttpEndpoint(context)),
      });
    },
  });
}
