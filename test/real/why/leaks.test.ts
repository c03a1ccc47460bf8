import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Volume } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import type { SampleDriverOptions } from '../../../sandbox/driver/server.ts';
import { paths, VOLUMES } from '../../conformance/objects.ts';
import { onDropInBed } from '../../harness/drop-in-bed.ts';
import type { SutlerProcess } from '../../harness/program.ts';
import { type LateWatch, startLateWatch } from '../../harness/late-watch.ts';
import { realControlPlane, type RealControlPlane } from '../../harness/real-control-plane.ts';
import { until } from '../../harness/until.ts';
import {
  deleteClaim,
  Gate,
  leakedVolumes,
  ofUpstream,
  pvsOf,
  type Start,
  startSutler,
} from '../../harness/why-bed.ts';

/** How many volumes are deleted. */
const DELETED = 20;

type DriverHook = NonNullable<SampleDriverOptions['onCall']>;

/** What a provisioner does while its watches are late. */
interface LateSteps {
  readonly program: SutlerProcess;
  readonly api: LateWatch;
  /** How often CreateVolume was called for the claim. */
  readonly calls: () => number;
}

interface LateContender {
  readonly start: Start;
  /** Waits until the provisioner has called CreateVolume again, or has left that. */
  readonly untilCreatedAgain: (steps: LateSteps) => Promise<void>;
  /** Waits until it has written what came of the second call. */
  readonly untilWritten: (steps: LateSteps) => Promise<void>;
}

const isRefusedVolume = ({ write, status }: LateWatch['answers'][number]): boolean =>
  write.startsWith('POST /api/v1/persistentvolumes') && status === 409;

const open = realControlPlane(process.env, { binder: true });

describe('volumes that users lost or had deleted twice', () => {
  let plane: RealControlPlane;
  before(async () => (plane = await open()));
  after(() => plane.close());

  it('a kill leaks no volume of a claim that is deleted then (external-provisioner #486)', async () => {
    assert.deepEqual(await leakedByKill(startSutler), []);
  });

  it(
    'external-provisioner leaks the volume of a claim that is deleted after a kill (#486)',
    ofUpstream(process.env, async (start) => {
      assert.equal((await leakedByKill(start)).length, 1);
    }),
  );

  it('late watches leak no volume (external-provisioner #1469)', async () => {
    const start: Start = (bed, args = []) =>
      startSutler(bed, ['--resync-interval=1s', '-v=4', ...args]);
    // It has looked for work twice, by what it knew.
    const untilCreatedAgain = async ({ program }: LateSteps): Promise<void> => {
      const looks = () => program.output().match(/enqueued everything outstanding/g)?.length ?? 0;
      const before = looks();
      await until(() => looks() > before + 1, 'everything outstanding was looked for');
    };
    const untilWritten = () => Promise.resolve();
    const leaked = await leakedByLateWatches({ start, untilCreatedAgain, untilWritten });
    assert.deepEqual(leaked, []);
  });

  it(
    'external-provisioner leaks a volume by late watches (#1469)',
    ofUpstream(process.env, async (start) => {
      const leaked = await leakedByLateWatches({
        start,
        untilCreatedAgain: ({ calls }) =>
          until(() => calls() === 2, 'CreateVolume is called again'),
        untilWritten: ({ api }) =>
          until(() => api.answers.some(isRefusedVolume), 'a second PV is refused'),
      });
      assert.equal(leaked.length, 1);
    }),
  );

  it('each volume is deleted by one call (external-provisioner #1235)', async () => {
    assert.equal(await needlessDeletions(startSutler), 0);
  });

  it(
    'external-provisioner calls DeleteVolume again for volumes that it has deleted (#1235)',
    ofUpstream(process.env, async (start) => {
      const needless = await needlessDeletions(start);
      process.stdout.write(`external-provisioner: ${needless} needless calls of DeleteVolume\n`);
      assert.ok(needless > 0);
    }),
  );

  async function leakedByKill(start: Start): Promise<readonly string[]> {
    const answers = new Gate();
    answers.close();
    const onCall: DriverHook = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      const answer = await proceed();
      await answers.passed;
      return answer;
    };
    return onDropInBed(plane, { onCall }, async (bed) => {
      const killed = await start(bed);
      await bed.createClaim('killed');
      await until(() => bed.handles().length === 1, 'the driver has the volume');
      await killed.kill();
      answers.open();
      await deleteClaim(bed, 'killed');
      await until(async () => (await bed.readClaim('killed')) === undefined, 'the claim is gone');
      await start(bed);
      return leakedVolumes(bed);
    });
  }

  async function leakedByLateWatches(o: LateContender): Promise<readonly string[]> {
    const [watches, first, again] = [new Gate(), new Gate(), new Gate()];
    const api = await startLateWatch(plane, {
      watches: /\/persistentvolume(claim)?s\?/,
      wait: () => watches.passed,
    });
    const ownKubeconfig = join(dirname(plane.kubeconfig), `late-${Date.now()}`);
    await writeFile(ownKubeconfig, JSON.stringify(api.kubeconfig));
    let volumeName: string | undefined;
    let calls = 0;
    // The second call waits until the first volume is deleted, or until its caller has given up.
    const onCall: DriverHook = async ({ method, request, signal, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      const { name } = request as CreateVolumeRequest;
      volumeName ??= name;
      if (name !== volumeName) return undefined;
      calls += 1;
      if (calls > 1) await Promise.race([again.passed, once(signal, 'abort')]);
      const answer = await proceed();
      await first.passed;
      return answer;
    };
    try {
      return await onDropInBed(plane, { ownKubeconfig, onCall }, async (bed) => {
        const program = await o.start(bed, ['--timeout=10s']);
        const steps: LateSteps = { program, api, calls: () => calls };
        first.close();
        again.close();
        const claim = await bed.createClaim('late');
        await until(() => calls === 1, 'CreateVolume is called');
        // The claim changes meanwhile. A later claim shows that the provisioner has seen that.
        const edit = { metadata: { annotations: { edited: 'yes' } } };
        await plane.api.patch('merge', `${paths(bed.namespace).claims}/late`, edit);
        await bed.createClaim('seen');
        await until(() => bed.isBound('seen'), 'a later claim is Bound');
        watches.close();
        first.open();
        await until(() => bed.isBound('late'), 'the claim is Bound');
        await o.untilCreatedAgain(steps);
        const name = `pvc-${claim.metadata.uid}`;
        const [made] = bed.driver.volumes().filter((volume) => volume.name === name);
        // A finalizer keeps the PV for longer, as an attacher's would.
        const finalizer = {
          op: 'add',
          path: '/metadata/finalizers/-',
          value: 'example.com/kept',
        };
        await plane.api.patch('json', `${VOLUMES}/${name}`, [finalizer]);
        await deleteClaim(bed, 'late');
        watches.open();
        await until(() => !bed.handles().includes(made?.handle ?? ''), 'the volume is deleted');
        const isLet = async () =>
          (await bed.kube.get<Volume>(volumes, { name }))?.metadata.finalizers?.length === 1;
        await until(isLet, 'all other finalizers are gone');
        again.open();
        await o.untilWritten(steps);
        await plane.api.patch('merge', `${VOLUMES}/${name}`, { metadata: { finalizers: null } });
        await deleteClaim(bed, 'seen');
        return leakedVolumes(bed);
      });
    } finally {
      await api.close();
    }
  }

  /** How many more DeleteVolumes there were than volumes. */
  async function needlessDeletions(start: Start): Promise<number> {
    return onDropInBed(plane, {}, async (bed) => {
      await start(bed);
      const names = Array.from({ length: DELETED }, (_, i) => `deleted-${i}`);
      await Promise.all(names.map((name) => bed.createClaim(name)));
      for (const name of names) await until(() => bed.isBound(name), `${name} is Bound`);
      for (const name of names) await deleteClaim(bed, name);
      await until(async () => (await pvsOf(bed)).length === 0, 'all PVs are gone');
      assert.deepEqual(await leakedVolumes(bed), []);
      return (bed.driver.counts.get('DeleteVolume') ?? 0) - bed.ledger.creations;
    });
  }
});
