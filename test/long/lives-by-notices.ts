import { type ChangeNotice, NoticeStream } from '#src/webhooks/notices.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import type { CreateVolumeResponse } from '#src/csi/generated/csi_pb.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { type Faults, type LossySender, startLossySender } from '../harness/lossy-sender.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { until } from '../harness/until.ts';

/** What became of claims that only notices and the resync told of. */
export interface Lives {
  readonly lostEvents: number;
  /** How many volumes the driver made for each name that it made any for. */
  readonly madeByName: ReadonlyMap<string, number>;
  /** Handles that the driver made and did not delete. */
  readonly left: readonly string[];
}

interface NoticedBed {
  readonly bed: ProcessBed;
  readonly driver: MadeVolumes;
  readonly sender: LossySender;
  close(): Promise<void>;
}

/** A cluster whose ingest holds no watch of claims and volumes, and a sender with faults. */
async function openNoticedBed(faults: Faults): Promise<NoticedBed> {
  const driver = new MadeVolumes();
  const bed = await ProcessBed.open({ onCall: (call) => driver.observe(call) });
  const stream = new NoticeStream({ redis: bed.redis.redis, trouble: undefined }, 'csi');
  const client = await bed.cluster.client();
  const send: (notices: readonly ChangeNotice[]) => Promise<void> = (notices) =>
    stream.append(notices);
  const sender = startLossySender({ client, send, faults, seed: 15 });
  return {
    bed,
    driver,
    sender,
    async close() {
      await sender.stop();
      await bed.close();
    },
  };
}

/** Creates claims, waits until all are bound, deletes them and waits until no volume is left. */
export async function liveByNotices(o: {
  readonly claims: number;
  readonly faults: Faults;
  readonly resync: string;
  readonly withinMs: number;
}): Promise<Lives> {
  const { bed, driver, sender, close } = await openNoticedBed(o.faults);
  try {
    const flags = ['--event-source=webhook', `--resync-interval=${o.resync}`];
    // Long, so that no call of a burst on a busy machine ends before its answer.
    const timeout = '--timeout=20s';
    await bed.startIngest(...flags, timeout);
    await bed.startJobs('--retry-interval-max=1s', timeout);
    const made = await createClaims(bed, o.claims);
    await until(() => areAllBound(bed, o.claims), 'all claims are bound', o.withinMs);
    await deleteClaims(bed, made);
    await until(() => areAllGone(bed, driver), 'all volumes are gone', o.withinMs);
    return {
      lostEvents: sender.lost,
      madeByName: driver.madeByName,
      left: [...driver.living],
    };
  } finally {
    await close();
  }
}

/** The volumes that a driver makes and deletes. */
class MadeVolumes {
  readonly madeByName = new Map<string, number>();
  readonly living = new Set<string>();

  async observe({ method, request, proceed }: DriverCall): Promise<unknown> {
    if (method === 'DeleteVolume') {
      const answer = await proceed();
      this.living.delete((request as unknown as { volumeId: string }).volumeId);
      return answer;
    }
    if (method !== 'CreateVolume') return undefined;
    const answer = (await proceed()) as Partial<CreateVolumeResponse>;
    const { name } = request as unknown as { name: string };
    const handle = answer.volume?.volumeId ?? '';
    // A call that is sent again is answered with the same volume.
    if (!this.living.has(handle)) this.madeByName.set(name, (this.madeByName.get(name) ?? 0) + 1);
    this.living.add(handle);
    return answer;
  }
}

async function createClaims(bed: ProcessBed, count: number): Promise<readonly Claim[]> {
  const made: Claim[] = [];
  for (let i = 0; i < count; i += 20)
    made.push(...(await Promise.all(Array.from({ length: 20 }, () => bed.newClaim()))));
  return made;
}

async function areAllBound(bed: ProcessBed, count: number): Promise<boolean> {
  const { items } = await bed.kube.list<Claim>(claims);
  return items.filter(({ status }) => status?.phase === 'Bound').length === count;
}

async function deleteClaims(bed: ProcessBed, made: readonly Claim[]): Promise<void> {
  await Promise.all(
    made.map(({ metadata: { namespace = '', name } }) =>
      bed.kube.delete(claims, { namespace, name }),
    ),
  );
}

async function areAllGone(bed: ProcessBed, driver: MadeVolumes): Promise<boolean> {
  if (driver.living.size > 0) return false;
  const { items } = await bed.kube.list<Volume>(volumes);
  return items.length === 0;
}
