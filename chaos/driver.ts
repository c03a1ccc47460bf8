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
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { DriverStatus } from '../sandbox/driver/driver-status.ts';
import { startSampleDriver, type DriverCall } from '../sandbox/driver/server.ts';
import { openCallLog } from './call-log.ts';
import { seededRandom } from './random.ts';

/* A sample driver that misbehaves at random, as a process of its own: some calls take longer than
 * their deadline, some are refused, some do their work and then answer Unavailable. Like real
 * storage, it continues after the caller is gone, and serves one call per volume at a time. */

const flags = defineFlags({
  ...processFlags,
  'csi-address': { type: 'string', default: '', help: 'Socket that the driver listens on.' },
  'data-dir': { type: 'string', default: '', help: 'Folder for the volumes.' },
  'call-log': { type: 'string', default: '', help: 'File that each call is appended to.' },
  seed: { type: 'int', default: 1, help: 'Repeats the random choices, call by call.' },
  'delay-ms': { type: 'int', default: 200, help: 'Mean time of a call.' },
  capricious: {
    type: 'bool',
    default: false,
    help: 'Refuse CreateVolume even for volumes that exist.',
  },
  'slow-ms': {
    type: 'int',
    default: 2_800,
    help: 'Time of a slow call: longer than its deadline.',
  },
});

const SLOW = 0.05;
const REFUSED = 0.05;
const UNCLEAR = 0.05;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {}, retired: {} },
  { name: 'chaos-driver', summary: 'sample driver that misbehaves at random', table: flags, start },
);

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, pid, closers } = p;
  const address = parseAddress('csi-address', f.csiAddress);
  if (address.kind !== 'unix')
    throw new UsageError('--csi-address: a driver listens on a unix socket');
  const log = openCallLog(f.callLog);
  // After a restart the choices differ: otherwise the same call could fail again and again.
  const random = seededRandom(f.seed + pid);
  const busy = new Set<string>();
  let calls = 0;

  const handleCall = async (
    method: 'CreateVolume' | 'DeleteVolume',
    call: DriverCall,
  ): Promise<unknown> => {
    calls += 1;
    const id = { pid, call: calls };
    const creates = method === 'CreateVolume';
    // The method says which of the two the request is.
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
      const delayMs = chance < SLOW ? f.slowMs : random.between(0.5, 1.5) * f.delayMs;
      if (busy.has(volume))
        throw new DriverStatus(Code.Aborted, `an operation on ${volume} is under way`);
      busy.add(volume);
      try {
        await systemClock.sleep(delayMs);
        // A driver that has the volume must not refuse it: sutler relies on that after the settle
        // time.
        const mayRefuse =
          f.capricious || !creates || !driver.volumes().some(({ name }) => name === volume);
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
          throw new DriverStatus(Code.Unavailable, 'done, but answered as unavailable');
        return answer;
      } finally {
        busy.delete(volume);
      }
    }
  };

  log({ event: 'boot', pid, atMs: systemClock.nowMs() });
  const driver = await startSampleDriver({
    socket: address.path,
    dataDir: f.dataDir,
    capacityBytes: 2n ** 60n,
    onCall: (call) =>
      call.method === 'CreateVolume' || call.method === 'DeleteVolume'
        ? handleCall(call.method, call)
        : undefined,
  });
  closers.add('driver', () => driver.close());
  p.announce({ socket: `unix://${driver.socket}`, driver: 'sample.csi.sutler.dev' });
}
