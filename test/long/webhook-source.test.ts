import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { CreateVolumeResponse, DeleteVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { type Reflector, startReflector, type Transformed } from '#src/kube/reflector.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type ChangeNotice, NoticeStream } from '#src/webhooks/notices.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { seeded } from '../harness/seeded.ts';
import { until } from '../harness/until.ts';

const CLAIMS = 400;
const LONGEST_DELAY_MS = 300;
const WITHIN_MS = 120_000;

describe('ingest without a watch of claims and volumes', () => {
  let bed: ProcessBed;
  let senders: readonly Reflector<Transformed>[] = [];
  let lost = 0;
  /** How many volumes the driver made, by the handles that it has not deleted since. */
  let made = 0;
  const left = new Set<string>();

  const observe = async ({ method, request, proceed }: DriverCall): Promise<unknown> => {
    if (method !== 'CreateVolume' && method !== 'DeleteVolume') return undefined;
    const answer = await proceed();
    if (method === 'DeleteVolume') left.delete((request as DeleteVolumeRequest).volumeId);
    else {
      const { volumeId = '' } = (answer as CreateVolumeResponse).volume ?? {};
      // A call that is sent again is answered with the same volume.
      if (!left.has(volumeId)) made += 1;
      left.add(volumeId);
    }
    return answer;
  };

  /** Sends a notice for each change: half of them never, some late, some twice. */
  const startSenders = async (): Promise<readonly Reflector<Transformed>[]> => {
    const random = seeded(15);
    const stream = new NoticeStream({ redis: bed.redis.redis, trouble: undefined }, 'csi');
    const send = (notice: ChangeNotice, delayMs: number): void => {
      const append = () => stream.append([notice]).catch(() => undefined);
      setTimeout(() => void append(), delayMs).unref();
    };
    const client = await bed.cluster.client();
    return [claims, volumes].map((resource) =>
      startReflector<Transformed>({
        client,
        resource,
        transform: (raw) => ({ metadata: (raw as KubeObject).metadata }),
        onChange: ({ object: { metadata } }) => {
          const { namespace = '', name } = metadata;
          const plural = resource.plural as ChangeNotice['resource'];
          const notice = { resource: plural, namespace, name };
          if (random() < 0.5) return void (lost += 1);
          send(notice, random() < 0.5 ? random() * LONGEST_DELAY_MS : 0);
          if (random() < 0.3) send(notice, random() * LONGEST_DELAY_MS);
        },
        log: silentLog,
      }),
    );
  };

  before(async () => {
    bed = await ProcessBed.open({ onCall: observe });
    senders = await startSenders();
    // Long, so that no call on a busy machine ends before its answer.
    const timeout = '--timeout=20s';
    await bed.startIngest('--event-source=webhook', '--resync-interval=3s', timeout);
    await bed.startJobs('--retry-interval-max=1s', timeout);
  });
  after(async () => {
    await Promise.all(senders.map((sender) => sender.stop()));
    await bed.close();
  });

  it('has all claims bound and all volumes deleted, each made once, although half of the events are lost', async () => {
    const created: Claim[] = [];
    for (let i = 0; i < CLAIMS; i += 20)
      created.push(...(await Promise.all(Array.from({ length: 20 }, () => bed.newClaim()))));
    const areBound = async (): Promise<boolean> => {
      const { items } = await bed.kube.list<Claim>(claims);
      return items.every(({ status }) => status?.phase === 'Bound');
    };
    await until(areBound, 'all claims are bound', WITHIN_MS);
    for (const { metadata } of created)
      await bed.kube.delete(claims, { namespace: 'default', name: metadata.name });
    const areGone = async (): Promise<boolean> =>
      left.size === 0 && (await bed.kube.list<Volume>(volumes)).items.length === 0;
    await until(areGone, 'all volumes are gone', WITHIN_MS);
    assert.equal(made, CLAIMS);
    assert.ok(lost > CLAIMS / 2, `${lost} events were lost`);
  });
});
