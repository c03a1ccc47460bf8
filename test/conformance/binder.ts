import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  listAt,
  namesOf,
  textAt,
  unique,
  type ApiServerUnderTest,
  type Connection,
  type Fields,
  type Reply,
} from './connection.ts';
import { describeServer } from './describe-server.ts';
import { CLASSES, VOLUMES, claim, paths, storageClass, volume } from './objects.ts';

const DRIVER = 'conformance.sutler.dev';
const STORAGE_PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
const BETA_STORAGE_PROVISIONER = 'volume.beta.kubernetes.io/storage-provisioner';
const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
const BIND_COMPLETED = 'pv.kubernetes.io/bind-completed';
const BOUND_BY_CONTROLLER = 'pv.kubernetes.io/bound-by-controller';
const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
const OUR_FINALIZER = 'external-provisioner.volume.kubernetes.io/finalizer';

/** Tests how the volume controller treats claims and volumes. The same suite runs on
 * kube-controller-manager and on the sandbox's binder; the suite itself acts as the provisioner. */
export function describeVolumeBinder(name: string, open: () => Promise<ApiServerUnderTest>): void {
  describeServer(`volume binder: ${name}`, open, (api) => {
    describeRequests(api);
    describeBinding(api);
    describeReleasing(api);
  });
}

function describeRequests(api: () => Connection): void {
  describe('a claim of a class with an external provisioner', () => {
    it('gets both annotations that name its provisioner', async () => {
      const { path, claimName } = await newClaim(api(), await newClass(api()));
      const { body } = await api().until(
        path,
        (reply) => annotation(reply, STORAGE_PROVISIONER) !== undefined,
      );
      assert.deepEqual(at(body, 'metadata', 'annotations'), {
        [STORAGE_PROVISIONER]: DRIVER,
        [BETA_STORAGE_PROVISIONER]: DRIVER,
      });
      assert.equal(at(body, 'status', 'phase'), 'Pending');
      assert.equal(at(body, 'metadata', 'name'), claimName);
    });

    it('gets the annotations only when a node is selected with WaitForFirstConsumer', async () => {
      const className = await newClass(api(), { volumeBindingMode: 'WaitForFirstConsumer' });
      const { path, namespace } = await newClaim(api(), className);
      await eventOf(api(), namespace, 'WaitForFirstConsumer');
      assert.equal(at(await api().read(path), 'metadata', 'annotations'), undefined);
      const selected = { [SELECTED_NODE]: 'node-1' };
      await api().patch('merge', path, { metadata: { annotations: selected } });
      const { body } = await api().until(
        path,
        (reply) => annotation(reply, STORAGE_PROVISIONER) !== undefined,
      );
      assert.deepEqual(at(body, 'metadata', 'annotations'), {
        ...selected,
        [STORAGE_PROVISIONER]: DRIVER,
        [BETA_STORAGE_PROVISIONER]: DRIVER,
      });
    });

    it('gets ProvisioningFailed until its class exists, then the annotations', async () => {
      const className = unique('class');
      const { path, namespace } = await newClaim(api(), className);
      const event = await eventOf(api(), namespace, 'ProvisioningFailed');
      assert.equal(at(event, 'message'), `storageclass.storage.k8s.io "${className}" not found`);
      await api().create(CLASSES, storageClass(className));
      await api().until(path, (reply) => annotation(reply, STORAGE_PROVISIONER) === DRIVER);
    });
  });
}

function describeBinding(api: () => Connection): void {
  describe('a volume that a provisioner created for a claim', () => {
    it('is Bound, with unchanged claimRef and annotations; so is the claim, with its size', async () => {
      const { path, volumeName, volumePath, made } = await boundPair(api(), {
        spec: { capacity: { storage: '3Gi' }, accessModes: ['ReadWriteOnce', 'ReadOnlyMany'] },
      });
      const pv = await api().read(volumePath);
      assert.equal(at(pv, 'status', 'phase'), 'Bound');
      assert.deepEqual(at(pv, 'spec', 'claimRef'), at(made, 'spec', 'claimRef'));
      assert.deepEqual(at(pv, 'metadata', 'annotations'), { [PROVISIONED_BY]: DRIVER });
      const stored = await api().read(path);
      assert.equal(at(stored, 'spec', 'volumeName'), volumeName);
      assert.deepEqual(at(stored, 'metadata', 'annotations'), {
        [BIND_COMPLETED]: 'yes',
        [BOUND_BY_CONTROLLER]: 'yes',
        [STORAGE_PROVISIONER]: DRIVER,
        [BETA_STORAGE_PROVISIONER]: DRIVER,
      });
      assert.deepEqual(at(stored, 'status'), {
        phase: 'Bound',
        accessModes: ['ReadWriteOnce', 'ReadOnlyMany'],
        capacity: { storage: '3Gi' },
      });
    });

    it('is Released if the claim has another uid; the claim stays Pending', async () => {
      const className = await newClass(api());
      const made = await newClaim(api(), className);
      const { volumePath } = await provision(
        api(),
        { ...made, uid: '00000000-0000-0000-0000-000000000000' },
        className,
      );
      await api().until(volumePath, isIn('Released'));
      assert.equal(at(await api().read(made.path), 'status', 'phase'), 'Pending');
    });
  });

  describe('a volume that an administrator created', () => {
    it('is bound to a matching claim of its class; both get annotations', async () => {
      const className = unique('class');
      const name = await availableVolume(api(), { storageClassName: className });
      const made = await newClaim(api(), className);
      const { body } = await api().until(made.path, isIn('Bound'));
      assert.equal(at(body, 'spec', 'volumeName'), name);
      const stored = (await api().until(`${VOLUMES}/${name}`, isIn('Bound'))).body;
      assert.equal(at(stored, 'metadata', 'annotations', BOUND_BY_CONTROLLER), 'yes');
      assert.equal(at(stored, 'spec', 'claimRef', 'uid'), made.uid);
      assert.equal(at(stored, 'spec', 'claimRef', 'kind'), 'PersistentVolumeClaim');
    });

    it('is bound to the claim that names it', async () => {
      const className = unique('class');
      const name = unique('pv');
      await api().create(VOLUMES, volume(name, { spec: { storageClassName: className } }));
      const made = await newClaim(api(), className, { volumeName: name });
      const { body } = await api().until(made.path, isIn('Bound'));
      // The claim named its volume, so it has no annotation that the controller chose the volume.
      assert.deepEqual(at(body, 'metadata', 'annotations'), { [BIND_COMPLETED]: 'yes' });
    });
  });
}

function describeReleasing(api: () => Connection): void {
  describe('a deleted claim', () => {
    it('leaves its volume Released, which no new claim with its name gets', async () => {
      const { path, volumePath, uid, namespace, className } = await boundPair(api());
      await api().call('DELETE', path);
      await api().until(path, isAbsent);
      const { body } = await api().until(volumePath, isIn('Released'));
      assert.equal(at(body, 'spec', 'claimRef', 'uid'), uid);
      assert.equal(at(body, 'metadata', 'deletionTimestamp'), undefined);
      const spec = { storageClassName: className };
      await api().create(paths(namespace).claims, claim('a', { spec }));
      await api().until(path, (reply) => annotation(reply, STORAGE_PROVISIONER) !== undefined);
      assert.equal(at(await api().read(volumePath), 'status', 'phase'), 'Released');
      assert.equal(at(await api().read(path), 'status', 'phase'), 'Pending');
    });
  });

  describe('a deleted volume', () => {
    it('is kept while it is Bound', async () => {
      const { path, volumePath } = await boundPair(api());
      await api().call('DELETE', volumePath);
      // When a later pair is Bound, the controller has handled the earlier change.
      await boundPair(api());
      const stored = await api().read(volumePath);
      assert.ok(listAt(stored, 'metadata', 'finalizers').includes('kubernetes.io/pv-protection'));
      assert.equal(at(stored, 'status', 'phase'), 'Bound');
      assert.equal(at(await api().read(path), 'status', 'phase'), 'Bound');
    });

    it('loses only the protection finalizer if it is Released', async () => {
      const { path, volumePath } = await boundPair(api());
      await api().call('DELETE', path);
      await api().until(volumePath, isIn('Released'));
      await api().call('DELETE', volumePath);
      const { body } = await api().until(
        volumePath,
        (reply) => !finalizersOf(reply).includes('kubernetes.io/pv-protection'),
      );
      assert.deepEqual(at(body, 'metadata', 'finalizers'), [OUR_FINALIZER]);
    });

    it('leaves its claim Lost if its finalizers are removed by force', async () => {
      const { path, volumePath } = await boundPair(api());
      await api().call('DELETE', volumePath);
      await api().patch('merge', volumePath, { metadata: { finalizers: null } });
      await api().until(path, isIn('Lost'));
    });
  });
}

interface MadeClaim {
  readonly namespace: string;
  readonly claimName: string;
  readonly uid: string;
}

async function newClass(api: Connection, fields: Fields = {}): Promise<string> {
  const name = unique('class');
  await api.create(CLASSES, storageClass(name, { fields }));
  return name;
}

async function newClaim(
  api: Connection,
  className: string,
  spec: Fields = {},
): Promise<MadeClaim & { readonly path: string }> {
  const namespace = await api.namespace();
  const { claims } = paths(namespace);
  const stored = await api.create(
    claims,
    claim('a', { spec: { storageClassName: className, ...spec } }),
  );
  return { namespace, claimName: 'a', uid: textAt(stored, 'metadata', 'uid'), path: `${claims}/a` };
}

/** Creates a volume as an administrator does.
 * @returns its name, when it is Available */
async function availableVolume(api: Connection, spec: Fields = {}): Promise<string> {
  const name = unique('pv');
  await api.create(VOLUMES, volume(name, { spec }));
  await api.until(`${VOLUMES}/${name}`, isIn('Available'));
  return name;
}

/** Creates the PV for a claim, as an external provisioner does. */
async function provision(
  api: Connection,
  made: MadeClaim,
  className: string,
  more: { readonly spec?: Fields } = {},
) {
  const volumeName = `pvc-${made.uid}-${unique('v')}`;
  const object = volume(volumeName, {
    metadata: { annotations: { [PROVISIONED_BY]: DRIVER }, finalizers: [OUR_FINALIZER] },
    spec: {
      storageClassName: className,
      persistentVolumeReclaimPolicy: 'Delete',
      claimRef: {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        namespace: made.namespace,
        name: made.claimName,
        uid: made.uid,
      },
      ...more.spec,
    },
  });
  const stored = await api.create(VOLUMES, object);
  return { volumeName, volumePath: `${VOLUMES}/${volumeName}`, made: stored };
}

/** A claim and a volume that are Bound to one another. */
async function boundPair(api: Connection, more: { readonly spec?: Fields } = {}) {
  const className = await newClass(api);
  const pending = await newClaim(api, className);
  await api.until(pending.path, (reply) => annotation(reply, STORAGE_PROVISIONER) !== undefined);
  const provisioned = await provision(api, pending, className, more);
  await api.until(pending.path, isIn('Bound'));
  await api.until(provisioned.volumePath, isIn('Bound'));
  return { ...pending, ...provisioned, className };
}

/** The first event with that reason in a namespace. */
async function eventOf(api: Connection, namespace: string, reason: string): Promise<unknown> {
  const { events } = paths(namespace);
  const { body } = await api.until(events, (reply) => namesOf(reply.body).length > 0, {
    fieldSelector: `reason=${reason}`,
  });
  return listAt(body, 'items')[0];
}

function annotation(reply: Reply, key: string): unknown {
  return at(reply.body, 'metadata', 'annotations', key);
}

function finalizersOf(reply: Reply): readonly unknown[] {
  return listAt(reply.body, 'metadata', 'finalizers');
}

function isIn(phase: string): (reply: Reply) => boolean {
  return (reply) => at(reply.body, 'status', 'phase') === phase;
}

function isAbsent(reply: Reply): boolean {
  return reply.status === 404;
}
