import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Code } from '#src/csi/status.ts';
import type { KubeObject, Volume } from '#src/kube/objects.ts';
import { events, volumes } from '#src/kube/resources.ts';
import { statusKey } from '#src/queue/queue-keys.ts';
import { redisSharedHandles } from '#src/hints/shared-handles.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startChild } from '../../sandbox/children.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { DRIVER, openRig, type Rig } from '../jobs/rig.ts';
import {
  countDeletions,
  createStaticVolume,
  edit,
  isDeletedByUs,
  readAgain,
} from '../jobs/stored-volume.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));

/** An event as the API server has it. */
interface StoredEvent extends KubeObject {
  readonly reason: string;
  readonly note?: string;
  readonly message?: string;
  readonly regarding?: { readonly name: string };
  readonly involvedObject?: { readonly name: string };
}

describe('a PV that is created with the handle of a volume under deletion', () => {
  const closers = new Closers();
  let rig: Rig;
  before(async () => {
    rig = await openRig({ hasJobs: false });
    closers.add('rig', () => rig.close());
    const times = ['--timeout=500ms', '--settle-time=100ms'];
    const retries = ['--retry-interval-start=50ms', '--retry-interval-max=1m'];
    for (const name of ['ingest', 'jobs']) {
      const plan = {
        name,
        command: [
          process.execPath,
          CLI,
          name,
          ...times,
          ...(name === 'jobs' ? retries : []),
          `--gateway=unix://${rig.dir}/gateway.sock`,
          `--kubeconfig=${rig.cluster.kubeconfig}`,
          '--http-endpoint=127.0.0.1:0',
        ] as const,
        env: { PATH: process.env['PATH'], HOME: rig.dir, REDIS_URL: rig.redisUrl },
        output: () => undefined,
      };
      const child = startChild(plan, { log: silentLog, onUsageError: () => undefined });
      closers.add(name, () => child.stop(5_000));
    }
  });
  after(() => closers.close());

  let first: Volume;
  let second: Volume | undefined;
  beforeEach(() => {
    second = undefined;
  });
  afterEach(() => {
    rig.onCall = () => undefined;
  });

  const handleOf = (volume: Volume): string => volume.spec.csi?.volumeHandle ?? '';
  /** Resolves when ingest has seen that both PVs have the handle. */
  const isPublished = (): Promise<void> =>
    until(async () => {
      const { sharersOf } = redisSharedHandles({ redis: rig.redis, prefix: 'csi', driver: DRIVER });
      const names = await sharersOf({ driver: DRIVER, id: handleOf(first), form: 'csi' });
      return names?.includes(first.metadata.name);
    }, 'ingest has published that the handle is shared');
  /** Creates the second PV, in use by another claim, and waits until ingest has seen it. */
  async function createSecond(): Promise<void> {
    const source = { csi: { driver: DRIVER, volumeHandle: handleOf(first) } };
    second = await createStaticVolume(rig, { phase: 'Bound', source });
    await isPublished();
  }
  /** Resolves when an event on the first PV names the second one. */
  const isReported = (): Promise<void> =>
    until(async () => {
      const { items } = await rig.kube.list<StoredEvent>(events);
      return items.some(
        (event) =>
          (event.regarding ?? event.involvedObject)?.name === first.metadata.name &&
          event.reason === 'VolumeFailedDelete' &&
          (event.note ?? event.message)?.startsWith(
            `PersistentVolume ${second?.metadata.name} has the same handle,`,
          ),
      );
    }, 'an event names the second PV');
  /** Resolves when the job of the first PV has ended a run, and waits for the second PV. */
  const isParked = (): Promise<void> =>
    until(
      async () =>
        (await rig.redis.hget(statusKey('csi', DRIVER, first.metadata.uid), 'outcome')) ===
        'parked',
      'the job of the first PV is parked',
    );
  async function removeSecond(): Promise<void> {
    assert.ok(second);
    // In this order: a PV in use that is not being deleted would get our finalizer again.
    await rig.kube.delete(volumes, { name: second.metadata.name });
    await edit(rig, second, { metadata: { finalizers: null } });
  }
  const isFirstDeleted = (): Promise<void> =>
    until(async () => isDeletedByUs(await readAgain(rig, first)), 'the first PV is deleted');

  it('keeps its volume if the deletion backs off meanwhile, until it is removed', async () => {
    let failures = 0;
    rig.onCall = async ({ method }) => {
      if (method !== 'DeleteVolume' || second !== undefined) return;
      failures += 1;
      // The third refusal comes when the second PV is there.
      if (failures === 3) await createSecond();
      throw new DriverStatus(Code.Internal, 'the array is busy');
    };
    first = await createStaticVolume(rig);
    await until(() => failures === 3 && second !== undefined, 'the driver refused three times');
    await isReported();
    await isParked();
    assert.equal(countDeletions(rig), 3, 'nothing was sent since the second PV exists');
    assert.ok(!isDeletedByUs(await readAgain(rig, first)));

    await removeSecond();
    await isFirstDeleted();
    assert.equal(countDeletions(rig), 4);
  });

  it('keeps its volume if the end of an earlier DeleteVolume is unknown', async () => {
    const before = countDeletions(rig);
    rig.onCall = async ({ method }) => {
      if (method !== 'DeleteVolume' || second !== undefined) return;
      await createSecond();
      await new Promise(() => undefined);
    };
    first = await createStaticVolume(rig);
    await until(() => second !== undefined, 'the second PV exists');
    await isReported();
    await isParked();
    assert.equal(countDeletions(rig), before + 1);

    await removeSecond();
    await isFirstDeleted();
    assert.equal(countDeletions(rig), before + 2);
  });
});
