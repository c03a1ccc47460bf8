import type {
  CreateVolumeRequest,
  CreateVolumeResponse,
  DeleteVolumeRequest,
} from '#src/csi/generated/csi_pb.ts';
import { Code, codeName } from '#src/csi/status.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { defineFlags, UsageError } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';
import { type ProcessContext, runProcess } from '#src/runtime/process.ts';
import { DriverStatus } from '../sandbox/driver/driver-status.ts';
import { type DriverCall, startSampleDriver } from '../sandbox/driver/server.ts';
import { openCallLog } from './call-log.ts';
import { seededRandom } from './random.ts';

/* A process with a sample driver that misbehaves at random: some calls take longer than their
 * deadline, some are refused, some do their work and then answer Unavailable. Like real storage, it
 * continues after the caller is gone, and serves one call per volume at a time. */

const table = defineFlags({
  ...processFlags,
  'csi-address': { type: 'string', default: '', help: 'Socket that the driver listens on.' },
  'data-dir': { type: 'string', default: '', help: 'Folder for the volumes.' },
  'call-log': { type: 'string', default: '', help: 'File that each call is appended to.' },
  seed: { type: 'int', default: 1, help: 'Seed of the random choices.' },
  'delay-ms': { type: 'int', default: 200, help: 'Mean time of a call.' },
  capricious: {
    type: 'bool',
    default: false,
    help: 'Refuse CreateVolume even for volumes that exist.',
  },
  'slow-share': { type: 'float', default: 0.05, help: 'Share of calls that are slow.' },
  'slow-ms': {
    type: 'int',
    default: 2_800,
    help: 'Time of a slow call: longer than its deadline.',
  },
});

/* Shares of calls. */
const REFUSED = 0.05;
const UNCLEAR = 0.05;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'chaos-driver', summary: 'sample driver that misbehaves at random', table, start },
);

async function start(context: ProcessContext<typeof table>): Promise<void> {
  const { flags, pid, closers } = context;
  const address = parseAddress('csi-address', flags.csiAddress);
  if (address.kind !== 'unix')
    throw new UsageError('--csi-address: a driver listens on a unix socket');
  const log = openCallLog(flags.callLog);
  // The pid changes the choices after a restart; otherwise the same call could fail forever.
  const random = seededRandom(flags.seed + pid);
  const busy = new Set<string>();
  let calls = 0;

  const handleCall = async (
    method: 'CreateVolume' | 'DeleteVolume',
    call: DriverCall,
  ): Promise<unknown> => {
    calls += 1;
    const id = { pid, call: calls };
    const creates = method === 'CreateVolume';
    // The method determines the type of the request.
    const volume = creates
      ? (call.request as CreateVolumeRequest).name
      : (call.request as DeleteVolumeRequest).volumeId;
    log({ event: 'start', ...id, atMs: systemClock.nowMs(), method, volume });
    call.signal.addEventListener(
      'abort',
      () => log({ event: 'cut', ...id, atMs: systemClock.nowMs() }),
      { once: true },
    );
    let code: number = Code.OK;
    try {
      return await serve();
    } catch (error) {
      code = error instanceof DriverStatus ? error.code : Code.Internal;
      throw error;
    } finally {
      log({ event: 'end', ...id, atMs: systemClock.nowMs(), code: codeName(code) });
    }

    async function serve(): Promise<unknown> {
      const chance = random.next();
      const delayMs =
        chance < flags.slowShare ? flags.slowMs : random.between(0.5, 1.5) * flags.delayMs;
      if (busy.has(volume))
        throw new DriverStatus(Code.Aborted, `an operation on ${volume} is under way`);
      busy.add(volume);
      try {
        await systemClock.sleep(delayMs);
        // sutler relies on this after the settle time: a driver that has the volume does not refuse
        // CreateVolume for it.
        const mayRefuse =
          flags.capricious || !creates || !driver.volumes().some(({ name }) => name === volume);
        if (chance > 1 - REFUSED && mayRefuse)
          throw new DriverStatus(
            creates ? Code.ResourceExhausted : Code.Internal,
            'refused at random',
          );
        const answer = await call.proceed();
        const atMs = systemClock.nowMs();
        if (creates)
          log({
            event: 'made',
            ...id,
            atMs,
            volume,
            handle: (answer as CreateVolumeResponse).volume?.volumeId ?? '',
          });
        else log({ event: 'deleted', ...id, atMs, handle: volume });
        if (chance > 1 - REFUSED - UNCLEAR)
          throw new DriverStatus(
            Code.Unavailable,
            'the work is done, but the answer is Unavailable',
          );
        return answer;
      } finally {
        busy.delete(volume);
      }
    }
  };

  log({ event: 'boot', pid, atMs: systemClock.nowMs() });
  const driver = await startSampleDriver({
    socket: address.path,
    dataDir: flags.dataDir,
    capacityBytes: 2n ** 60n,
    onCall: (call) =>
      call.method === 'CreateVolume' || call.method === 'DeleteVolume'
        ? handleCall(call.method, call)
        : undefined,
  });
  closers.add('driver', () => driver.close());
  context.announce({ socket: `unix://${driver.socket}`, driver: 'sample.csi.sutler.dev' });
}
