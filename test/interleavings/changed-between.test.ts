import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { toBinary } from '@bufbuild/protobuf';
import { type CreateVolumeRequest, CreateVolumeRequestSchema } from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import type { Parts } from '../jobs/parts.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import { claims, secrets, volumes } from '#src/kube/resources.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { Story } from './story.ts';
import { until } from '../harness/until.ts';

/** What changes between an attempt whose answer was lost and the next one. */
interface Change {
  readonly title: string;
  readonly change: (story: Story, claim: Claim) => Promise<Partial<Parts>>;
  /** Whether the volume is reclaimed in the end, instead of bound. */
  readonly isReclaimed?: true;
}

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';

const classWith = (story: Story, claim: Claim, change: Partial<Class>): Partial<Parts> => {
  const cls = story.rig.parts.classOf(claim.spec.storageClassName ?? '');
  assert.ok(cls);
  return { classOf: () => ({ ...cls, ...change }) };
};

const annotate = (
  story: Story,
  claim: Claim,
  annotations: Readonly<Record<string, string | null>>,
): Promise<unknown> =>
  story.rig.kube.patch(
    claims,
    { namespace: 'default', name: claim.metadata.name },
    { type: 'merge', body: { metadata: { annotations } } },
  );

const CHANGES: readonly Change[] = [
  {
    title: 'the class has other parameters',
    change: (story, claim) =>
      Promise.resolve(
        classWith(story, claim, { parameters: { type: 'second' }, mountOptions: ['ro'] }),
      ),
  },
  { title: 'the class is gone', change: () => Promise.resolve({ classOf: () => undefined }) },
  {
    title: 'the class belongs to another driver',
    change: (story, claim) =>
      Promise.resolve(classWith(story, claim, { provisioner: 'other.example' })),
  },
  {
    title: 'the driver has other capabilities',
    change: (story) => {
      const facts = story.rig.parts.facts();
      return Promise.resolve({
        facts: () => ({
          ...facts,
          controllerCapabilities: new Set([
            ...facts.controllerCapabilities,
            'SINGLE_NODE_MULTI_WRITER',
          ]),
        }),
      });
    },
  },
  {
    title: 'the driver reports that it creates no volumes',
    change: (story) =>
      Promise.resolve({
        facts: () => ({ ...story.rig.parts.facts(), controllerCapabilities: new Set() }),
      }),
  },
  {
    title: 'the process has other options',
    change: (story) =>
      Promise.resolve({
        options: { ...story.rig.parts.options, defaultFsType: 'xfs', extraCreateMetadata: true },
      }),
  },
  {
    title: 'the selected node is removed from the claim',
    change: async (story, claim) => {
      await annotate(story, claim, { [SELECTED_NODE]: null });
      return classWith(story, claim, { volumeBindingMode: 'WaitForFirstConsumer' });
    },
  },
  {
    title: 'the claim is annotated for another provisioner',
    change: async (story, claim) => {
      await annotate(story, claim, { 'volume.kubernetes.io/storage-provisioner': 'other.example' });
      return {};
    },
  },
  {
    title: 'the claim is bound to another PV',
    isReclaimed: true,
    change: async (story, claim) => {
      const name = `static-${claim.metadata.name}`;
      await story.rig.kube.create<Volume>(volumes, undefined, {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name },
        spec: {
          storageClassName: claim.spec.storageClassName ?? '',
          capacity: { storage: '1Mi' },
          accessModes: ['ReadWriteOnce'],
          claimRef: { namespace: 'default', name: claim.metadata.name, uid: claim.metadata.uid },
          csi: { driver: 'other.example', volumeHandle: name },
        },
      });
      await until(
        async () => (await story.readClaim(claim))?.spec.volumeName === name,
        'the claim is bound',
      );
      return {};
    },
  },
  {
    title: 'the claim is deleted',
    isReclaimed: true,
    change: async (story, claim) => {
      await story.deleteClaim(claim);
      return {};
    },
  },
];

describe('between two attempts at one volume', () => {
  let story: Story;
  before(async () => {
    story = await Story.open();
  });
  after(() => story.close());
  beforeEach(() => story.reset());

  const bytesOf = (claim: Claim): readonly string[] =>
    story
      .creates(claim)
      .map(({ request }) =>
        Buffer.from(toBinary(CreateVolumeRequestSchema, request as CreateVolumeRequest)).toString(
          'base64',
        ),
      );

  for (const { title, change, isReclaimed } of CHANGES) {
    const end = isReclaimed ? 'its volume reclaimed' : 'its volume bound';
    it(`${title}: the stored request is repeated and ${end}`, async () => {
      const claim = await story.rig.claim({ parameters: { type: 'first' } });
      await annotate(story, claim, { [SELECTED_NODE]: 'node-1' });
      await story.loseAnswer(claim);
      const [first = ''] = bytesOf(claim);
      const parts = await change(story, claim);
      const worker = story.worker({ parts });
      assert.equal((await worker.reconcileClaim(claim)).kind, 'done');
      assert.deepEqual(bytesOf(claim), [first, first]);
      assert.equal(await story.rig.redis.hlen('{csi}:open:sample.csi.sutler.dev'), 0);
      const volume = await story.rig.volumeOf(claim);
      assert.equal(volume?.spec.claimRef?.uid, claim.metadata.uid);
      assert.equal(volume?.spec.mountOptions, undefined);
      if (isReclaimed !== true) return story.assertOneVolume(claim);
      await until(
        async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
        'the volume controller releases it',
      );
      const plain = story.worker();
      await until(
        async () => (await plain.reconcileVolume(volume)).kind === 'done',
        'its deletion is done',
      );
      await until(async () => (await story.rig.volumeOf(claim)) === undefined, 'its PV is gone');
      await story.assertNothingLeft(claim);
    });
  }

  it('an unambiguous refusal: the next request is planned from the edited class', async () => {
    const claim = await story.rig.claim({ parameters: { type: 'first' } });
    story.script(({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(Code.ResourceExhausted, 'full');
    });
    assert.equal((await story.worker().reconcileClaim(claim)).kind, 'retry');
    story.script(() => undefined);
    assert.equal(
      (
        await story
          .worker({ parts: classWith(story, claim, { parameters: { type: 'second' } }) })
          .reconcileClaim(claim)
      ).kind,
      'done',
    );
    assert.deepEqual(
      story.creates(claim).map(({ request }) => (request as CreateVolumeRequest).parameters),
      [{ type: 'first' }, { type: 'second' }],
    );
  });

  describe('the secret is deleted', () => {
    const NAMESPACE = 'tenant';
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': 'credentials',
      'csi.storage.k8s.io/provisioner-secret-namespace': NAMESPACE,
    };
    const metadata = { name: 'credentials', namespace: NAMESPACE };
    const makeSecret = async (value: string): Promise<void> => {
      const { operations } = story.rig.cluster.api;
      const { namespaces } = await import('../../sandbox/api/kinds/core.ts');
      try {
        operations.create(namespaces, undefined, { metadata: { name: NAMESPACE } });
      } catch {
        // The test before has created it.
      }
      const data = { key: Buffer.from(value).toString('base64') };
      await story.rig.kube.create(secrets, NAMESPACE, {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata,
        data,
      });
    };
    const deleteNamespace = async (): Promise<void> => {
      await story.rig.kube.delete(
        { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespace', namespaced: false },
        { name: NAMESPACE },
      );
      await until(
        async () => (await story.rig.kube.get(secrets, metadata)) === undefined,
        'the secret is gone with its namespace',
      );
    };

    it('before the second attempt: nothing is sent and the record stays ambiguous', async () => {
      await makeSecret('one');
      const claim = await story.rig.claim({ parameters });
      await story.loseAnswer(claim);
      await deleteNamespace();
      story.rig.events.length = 0;
      const outcome = await story.worker().reconcileClaim(claim);
      assert.equal(outcome.kind, 'retry');
      assert.deepEqual(story.messages(), [
        'Warning ProvisioningFailed error getting secret credentials in namespace tenant: secrets "credentials" not found',
      ]);
      assert.equal(story.creates(claim).length, 1);
      const record = await story.rig.record(claim.metadata.uid);
      assert.deepEqual([record['state'], record['amb']], ['creating', '1']);
      await makeSecret('two');
      await story.runUntilDone(claim);
      await story.assertOneVolume(claim);
      assert.deepEqual(
        story.creates(claim).map(({ request }) => (request as CreateVolumeRequest).secrets),
        [{ key: 'one' }, { key: 'two' }],
      );
      await story.rig.kube.delete(secrets, metadata);
    });

    it('before the deletion: the key parks until the secret is created', async () => {
      await makeSecret('one');
      const claim = await story.rig.claim({ parameters });
      await story.runUntilDone(claim);
      await story.deleteClaim(claim);
      await deleteNamespace();
      await until(
        async () => (await story.rig.volumeOf(claim))?.status?.phase === 'Released',
        'the volume is released',
      );
      const volume = await story.rig.volumeOf(claim);
      assert.ok(volume);
      const outcome = await story.worker().reconcileVolume(volume);
      assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
      const { resource, namespace, name } = outcome.until?.[0] ?? {};
      assert.deepEqual([resource, namespace, name], ['secrets', NAMESPACE, 'credentials']);
      assert.match(
        outcome.reason,
        /secret tenant\/credentials of this volume's deletion is not there/,
      );
      assert.equal(story.deletes().length, 0);
      await makeSecret('two');
      await story.runUntilDone(claim);
      await story.assertNothingLeft(claim);
      await story.rig.kube.delete(secrets, metadata);
    });
  });
});
