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

/* The sample driver with moods, as a process of its own: some calls outlast their deadline, some
 * are refused, some do their work and then give no clear answer. As real storage does, it works on
 * after the caller is gone, and serves one call per volume at a time. */

const flags = defineFlags({
  ...processFlags,
  'csi-address': { type: 'string', default: '', help: 'Socket that the driver listens on.' },
  'data-dir': { type: 'string', default: '', help: 'Folder that holds the volumes.' },
  'call-log': { type: 'string', default: '', help: 'File that each call is appended to.' },
  seed: { type: 'int', default: 1, help: 'Repeats the moods, call by call.' },
  'delay-ms': { type: 'int', default: 200, help: 'Mean time of a call.' },
  capricious: { type: 'bool', default: false, help: 'Refuse even what is there already.' },
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
  { name: 'chaos-driver', summary: 'sample driver with moods', table: flags, start },
);

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, pid, closers } = p;
  const address = parseAddress('csi-address', f.csiAddress);
  if (address.kind !== 'unix')
    throw new UsageError('--csi-address: a driver listens on a unix socket');
  const log = openCallLog(f.callLog);
  // Another life, other moods: else a call that kills its driver would meet the same mood for ever.
  const random = seededRandom(f.seed + pid);
  const busy = new Set<string>();
  let calls = 0;

  const attend = async (
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
      const mood = random.next();
      const delayMs = mood < SLOW ? f.slowMs : random.between(0.5, 1.5) * f.delayMs;
      if (busy.has(volume))
        throw new DriverStatus(Code.Aborted, `an operation on ${volume} is under way`);
      busy.add(volume);
      try {
        await systemClock.sleep(delayMs);
        // Who has the volume may not deny it: that is what a refusal after the settle time is
        // trusted for.
        const mayRefuse =
          f.capricious || !creates || !driver.volumes().some(({ name }) => name === volume);
        if (mood > 1 - REFUSED && mayRefuse)
          throw new DriverStatus(
            creates ? Code.ResourceExhausted : Code.Internal,
            'not in the mood',
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
        if (mood > 1 - REFUSED - UNCLEAR)
          throw new DriverStatus(Code.Unavailable, 'done, but you shall not know');
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
        ? attend(call.method, call)
        : undefined,
  });
  closers.add('driver', () => driver.close());
  p.announce({ socket: `unix://${driver.socket}`, driver: 'sample.csi.sutler.dev' });
}
