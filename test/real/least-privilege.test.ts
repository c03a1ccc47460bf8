import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  Controller,
  type ControllerGetCapabilitiesResponse,
  ControllerServiceCapability_RPC_Type,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { PROVISIONED_BY, SELECTED_NODE, SNAPSHOT_SOURCE_PROTECTION } from '#src/kube/keys.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import {
  at,
  type Connection,
  type Fields,
  listAt,
  type Reply,
  textAt,
} from '../conformance/connection.ts';
import { claim, CLASSES, paths, secret, storageClass, VOLUMES } from '../conformance/objects.ts';
import {
  makeContent,
  makeSnapshot,
  type SnapshotChanges,
  snapshotPlace,
} from '../harness/differential/snapshot-objects.ts';
import {
  CENTRAL,
  type LeastPrivilegeBed,
  LOCAL,
  NODE_KEY,
  openLeastPrivilegeBed,
} from '../harness/least-privilege/bed.ts';
import type { SutlerProcess } from '../harness/program.ts';
import { HOME } from '../harness/least-privilege/shipped-rights.ts';
import { makeNode } from '../harness/real-nodes.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';
import { denials } from '../harness/redis-users.ts';
import { installCrdsIn, referenceGrantCrd, snapshotCrds } from '../harness/snapshot-crds.ts';
import { until } from '../harness/until.ts';

const SNAPSHOT_API = 'snapshot.storage.k8s.io/v1';
const STORAGE = '/apis/storage.k8s.io/v1';
const CAPACITIES = `${STORAGE}/namespaces/${HOME}/csistoragecapacities`;
const NODES = ['node-1', 'node-2'] as const;
// The cluster of KUBECONFIG shows no audit log.
const skip = (process.env['KUBEBUILDER_ASSETS'] ?? '') === '' && 'no kube-apiserver to start';
const openPlane = realControlPlane(process.env, {
  binder: true,
  serverGates: ['CrossNamespaceVolumeDataSource'],
  auditedGroup: `system:serviceaccounts:${HOME}`,
});

let bed: LeastPrivilegeBed;
let api: Connection;
let namespace: string;

describe('processes with exactly the rights of k8s/, on kube-apiserver', { skip }, () => {
  let leader: SutlerProcess;
  let worker: SutlerProcess;
  before(async () => {
    bed = await openLeastPrivilegeBed(openPlane);
    ({ api } = bed);
    await installCrdsIn(bed.kubeconfig, [...snapshotCrds, referenceGrantCrd(['v1'])]);
    namespace = await api.namespace();
    for (const name of NODES)
      await makeNode(api, { name, driver: LOCAL, labels: { [NODE_KEY]: name } });
    await bed.startDriver({ name: CENTRAL, onCall: attachOrRefuse });
    await bed.startDriver({
      name: LOCAL,
      pools: NODES.map((name) => ({
        name,
        segments: { [NODE_KEY]: name },
        capacityBytes: 3n * 1024n ** 3n,
      })),
    });
    await createClass('central', {});
    await createClass('local', { provisioner: LOCAL, volumeBindingMode: 'WaitForFirstConsumer' });
    leader = await bed.startIngest(`--webhook-address=${bed.webhooks}`);
    worker = await bed.startJobs();
  });
  after(() => bed.close());

  it('provision a claim, and delete its volume', async () => {
    await bind('plain');
    await remove('plain');
  });

  it('wait for a secret that one name or one namespace grants, and send it', async () => {
    for (const [home, name] of [
      ['storage-secrets', 'driver-credentials'],
      ['more-secrets', 'any'],
    ] as const) {
      await createClass(home, {
        parameters: {
          'csi.storage.k8s.io/provisioner-secret-name': name,
          'csi.storage.k8s.io/provisioner-secret-namespace': home,
        },
      });
      await create(home, { storageClassName: home });
      await isWarned(home, /secrets ".*" not found/);
      await isUsed(new RegExp(`sutler-ingest by sutler-ingest-secrets/${home}: list /secrets`));
      await api.create(paths(home).secrets, secret(name, { fields: { stringData: { key: 'v' } } }));
      await isBound(home);
      await remove(home);
    }
  });

  it('create the volumes of a class one by one, and warn of an annotation of it', async () => {
    const metadata = {
      name: 'limited',
      annotations: { 'sutler.dev/max-in-flight': '1', 'sutler.dev/creation-timeout': 'long' },
    };
    await createClass('limited', { metadata });
    for (const name of ['limited-1', 'limited-2'])
      await create(name, { storageClassName: 'limited' });
    for (const name of ['limited-1', 'limited-2']) await isBound(name);
    await isWarnedIn('default', 'limited', /creation-timeout is ignored: "long" is not a duration/);
  });

  it('clone a claim, whose source may go afterwards', async () => {
    await bind('origin');
    await bind('copy', { dataSource: { kind: 'PersistentVolumeClaim', name: 'origin' } });
    await remove('origin');
    await remove('copy');
  });

  it('wait for a snapshot and its content, restore it, and let go of it', async () => {
    await bind('pictured');
    const handle = await takeSnapshot('pictured');
    await create('restored', { dataSource: sourceOf('picture') });
    await isWarned('restored', /volumesnapshots.* "picture" not found/);
    const place = snapshotPlace(api, namespace, CENTRAL);
    const made = await makeSnapshot(place, 'picture', {
      status: { restoreSize: '1Mi' },
      content: null,
    });
    await isWarned('restored', /snapshotcontent content-picture/);
    await makeContent(place, made, contentOf(handle));
    await isBound('restored');
    await isReleased('picture');
  });

  it('restore a snapshot of another namespace that a ReferenceGrant opens', async () => {
    const other = await api.namespace();
    await bind('elsewhere');
    const place = snapshotPlace(api, other, CENTRAL);
    await makeSnapshot(place, 'foreign', contentOf(await takeSnapshot('elsewhere')));
    await api.create(`/apis/gateway.networking.k8s.io/v1/namespaces/${other}/referencegrants`, {
      apiVersion: 'gateway.networking.k8s.io/v1',
      kind: 'ReferenceGrant',
      metadata: { name: 'open' },
      spec: {
        from: [{ group: '', kind: 'PersistentVolumeClaim', namespace }],
        to: [{ group: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot' }],
      },
    });
    await bind('across', { dataSourceRef: { ...sourceOf('foreign'), namespace: other } });
  });

  it('sweep a snapshot that kept the finalizer although nothing is restored from it', async () => {
    const metadata = { finalizers: [SNAPSHOT_SOURCE_PROTECTION] };
    await makeSnapshot(snapshotPlace(api, namespace, CENTRAL), 'left', { metadata, content: null });
    await isReleased('left');
  });

  it('wait for a VolumeAttributesClass', async () => {
    await create('fast', { volumeAttributesClassName: 'gold' });
    await isWarned('fast', /gold.* not found/i);
    await isUsed(/sutler-ingest by sutler-ingest: list \S+volumeattributesclasses/);
    await api.create(`${STORAGE}/volumeattributesclasses`, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'VolumeAttributesClass',
      metadata: { name: 'gold' },
      driverName: CENTRAL,
      parameters: { speed: 'high' },
    });
    await isBound('fast');
  });

  it('delete a volume only when it is attached to no node', async () => {
    const volume = textAt(await bind('attached'), 'metadata', 'name');
    await api.create(`${STORAGE}/volumeattachments`, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'VolumeAttachment',
      metadata: { name: 'attachment' },
      spec: {
        attacher: CENTRAL,
        nodeName: NODES[0],
        source: { persistentVolumeName: volume },
      },
    });
    await api.call('DELETE', `${paths(namespace).claims}/attached`);
    await isWarnedIn('default', volume, /still attached to node/);
    await isUsed(/sutler-ingest by sutler-ingest: list \S+volumeattachments/);
    await api.call('DELETE', `${STORAGE}/volumeattachments/attachment`);
    await api.until(`${VOLUMES}/${volume}`, ({ status }) => status === 404);
  });

  it('keep a volume that two PersistentVolumes name, and say so again', async () => {
    for (const name of ['twin-1', 'twin-2'])
      await api.create(VOLUMES, {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name, annotations: { [PROVISIONED_BY]: CENTRAL } },
        spec: {
          accessModes: ['ReadWriteOnce'],
          capacity: { storage: '1Mi' },
          csi: { driver: CENTRAL, volumeHandle: 'shared' },
          persistentVolumeReclaimPolicy: 'Delete',
          storageClassName: 'central',
          claimRef: { namespace, name: `of-${name}`, uid: name },
        },
      });
    await isWarnedIn('default', 'twin-1', /./);
    await until(async () => {
      const labels = { touched: String(Date.now()) };
      await api.patch('merge', `${VOLUMES}/twin-1`, { metadata: { labels } });
      const { used } = await bed.audited();
      return used.has('sutler-jobs by sutler-jobs: patch /events');
    }, 'the event is repeated');
  });

  it('move a claim from a node without room to another one, and publish what is left', async () => {
    await create('big', localSpec('2Gi'), { [SELECTED_NODE]: NODES[0] });
    await isBound('big');
    await create('moved', localSpec('2Gi'), { [SELECTED_NODE]: NODES[0] });
    const path = `${paths(namespace).claims}/moved`;
    await api.until(
      path,
      ({ body }) => at(body, 'metadata', 'annotations', SELECTED_NODE) === undefined,
    );
    const annotations = { [SELECTED_NODE]: NODES[1] };
    await api.patch('merge', path, { metadata: { annotations } });
    await isBound('moved');
    await api.until(CAPACITIES, ({ body }) =>
      listAt(body, 'items').every((item) => at(item, 'capacity') === '1Gi'),
    );
  });

  it('wait for a node on which the class may have volumes', async () => {
    await createClass('rack', {
      provisioner: LOCAL,
      volumeBindingMode: 'WaitForFirstConsumer',
      allowedTopologies: [{ matchLabelExpressions: [{ key: NODE_KEY, values: ['node-3'] }] }],
    });
    await create('late', { storageClassName: 'rack' }, { [SELECTED_NODE]: NODES[0] });
    await isWarned('late', /./);
    await makeNode(api, {
      name: 'node-3',
      driver: LOCAL,
      labels: { [NODE_KEY]: 'node-3' },
    });
    await api.call('DELETE', `${paths(namespace).claims}/late`);
  });

  it('publish no capacity of a class that is gone', async () => {
    await createClass('local-2', {
      provisioner: LOCAL,
      volumeBindingMode: 'WaitForFirstConsumer',
    });
    const ofClass = ({ body }: Reply): number =>
      listAt(body, 'items').filter((item) => at(item, 'storageClassName') === 'local-2').length;
    await api.until(CAPACITIES, (reply) => ofClass(reply) >= 2);
    await api.call('DELETE', `${CLASSES}/local-2`);
    await api.until(CAPACITIES, (reply) => ofClass(reply) === 0);
  });

  it('read what a notice names', async () => {
    const objects = [
      { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name: 'fast' },
      { apiVersion: 'v1', kind: 'PersistentVolume', name: 'twin-1' },
    ];
    for (const [index, data] of objects.entries()) {
      const reply = await fetch(`http://${bed.webhooks}/events`, {
        method: 'POST',
        headers: { 'content-type': 'application/cloudevents+json' },
        body: JSON.stringify({
          specversion: '1.0',
          id: String(index),
          source: 'test',
          type: 'dev.knative.apiserver.ref.update',
          data,
        }),
      });
      assert.ok(reply.ok, `${reply.status} ${await reply.text()}`);
    }
    await isUsed(/by sutler-ingest: get \/persistentvolumes/);
  });

  it('repeat the event of a claim that the driver refuses', async () => {
    await createClass('refused', { parameters: { refused: 'yes' } });
    await create('refused', { storageClassName: 'refused' });
    await isUsed(/sutler-jobs by sutler-jobs: patch \/events/);
  });

  it('lead in the place of an ingest that was killed', async () => {
    // Without a watch of PersistentVolumes: jobs lists them, to see which of them share a volume.
    const next = await bed.startIngest('--event-source=webhook', '--resync-interval=2s');
    await leader.kill();
    leader = next;
    await bind('after-the-leader');
    await remove('after-the-leader');
    await isUsed(/sutler-jobs by sutler-jobs: list \/persistentvolumes/);
  });

  it('take over what a killed worker ran', async () => {
    isSlow = true;
    await create('taken-over');
    await until(() => isSlow === 'called', 'the driver is called');
    await worker.kill();
    isSlow = false;
    worker = await bed.startJobs();
    await isBound('taken-over');
  });

  it('find a volume that no PersistentVolume names', async () => {
    const volume = await bind('orphaned');
    const name = textAt(volume, 'metadata', 'name');
    const kept = { spec: { persistentVolumeReclaimPolicy: 'Retain' } };
    await api.patch('merge', `${VOLUMES}/${name}`, kept);
    await api.call('DELETE', `${paths(namespace).claims}/orphaned`);
    await api.call('DELETE', `${VOLUMES}/${name}`);
    await api.until(paths(HOME).events, ({ body }) =>
      listAt(body, 'items').some((event) => at(event, 'reason') === 'OrphanedVolumes'),
    );
  });

  it('let commands in a container of ingest look, retry and drain', async () => {
    const object = `${namespace}/refused`;
    assert.match(await bed.operate('ingest', 'explain', object), /cause:/);
    assert.match(await bed.operate('ingest', 'status'), /driver/);
    assert.match(
      await bed.operate('ingest', 'retry', object),
      /: (tried now|a worker is working on it)/,
    );
    assert.match(await bed.operate('ingest', 'audit'), /volumes/);
    assert.match(await bed.operate('ingest', 'drain', '--undo'), /was not drained/);
  });

  it('let an operator run every command, and remove what they leave', async () => {
    assert.match(await bed.operate('operator', 'explain', `${namespace}/refused`), /cause:/);
    assert.match(await bed.operate('operator', 'status'), /driver/);
    const isRetried = async () =>
      (await bed.operate('operator', 'retry', '--all')).includes(': tried now');
    await until(isRetried, 'no run is at work on all of them');
    const refused = await api.read(`${paths(namespace).claims}/refused`);
    const uid = textAt(refused, 'metadata', 'uid');
    const forget = async (): Promise<boolean> =>
      (await bed.operate('operator', 'forget', uid, '--why=test')).startsWith(`forgot ${uid}`);
    await until(forget, 'no run is at work on the claim');
    for (const name of ['refused', 'roomy'])
      await api.call('DELETE', `${paths(namespace).claims}/${name}`);
    assert.match(await bed.operate('operator', 'audit'), /volumes/);
    // A worker died while it created that one: its job stays until the doubt is over.
    const isOver = async () => !(await bed.operate('operator', 'audit')).includes('taken-over');
    await until(isOver, 'nothing is in doubt', 120_000);
    await worker.stop();
    assert.match(await bed.operate('operator', 'drain'), /./);
    assert.match(await bed.operate('operator', 'drain', '--undo'), /is ended/);
    await leader.stop();
    assert.match(await bed.operate('operator', 'uninstall', '--yes'), /./);
    assert.deepEqual(await bed.data.keys('*'), []);
  });

  it('were refused nothing by the API server', async () => {
    isEmpty([...(await bed.audited()).refused]);
  });

  it('have used every right that they have', async () => {
    const { used } = await bed.audited();
    // An object of the journal is deleted after a burst of more claims than one holds.
    const isOfBursts = (right: string) => right.endsWith(': delete coordination.k8s.io/leases');
    isEmpty([...bed.rights].filter((right) => !used.has(right) && !isOfBursts(right)));
  });

  it('were denied nothing by Redis', async () => {
    isEmpty(await denials(bed.redis.redis));
  });
});

async function createClass(name: string, fields: Fields): Promise<void> {
  const object = storageClass(name, { fields: { provisioner: CENTRAL, ...fields } });
  await api.create(CLASSES, object);
}

async function create(name: string, spec: Fields = {}, annotations: Fields = {}): Promise<void> {
  const whole = {
    storageClassName: 'central',
    resources: { requests: { storage: '1Mi' } },
    ...spec,
  };
  const { claims } = paths(namespace);
  await api.create(claims, claim(name, { spec: whole, metadata: { annotations } }));
}

function localSpec(storage: string): Fields {
  return { storageClassName: 'local', resources: { requests: { storage } } };
}

/** @returns its volume */
async function isBound(name: string): Promise<unknown> {
  const { body } = await api.until(
    `${paths(namespace).claims}/${name}`,
    (reply) => at(reply.body, 'status', 'phase') === 'Bound',
  );
  return api.read(`${VOLUMES}/${textAt(body, 'spec', 'volumeName')}`);
}

async function bind(name: string, spec: Fields = {}): Promise<unknown> {
  await create(name, spec);
  return isBound(name);
}

/** Deletes a claim, and waits until its volume is gone. */
async function remove(name: string): Promise<void> {
  const path = `${paths(namespace).claims}/${name}`;
  const volume = textAt(await api.read(path), 'spec', 'volumeName');
  await api.call('DELETE', path);
  await api.until(`${VOLUMES}/${volume}`, ({ status }) => status === 404);
  await api.until(path, ({ status }) => status === 404);
}

function isWarned(name: string, message: RegExp): Promise<unknown> {
  return isWarnedIn(namespace, name, message);
}

async function isWarnedIn(where: string, name: string, message: RegExp): Promise<void> {
  await api.until(
    paths(where).events,
    ({ body }) =>
      listAt(body, 'items').some(
        (event) => at(event, 'type') === 'Warning' && message.test(textAt(event, 'message')),
      ),
    { fieldSelector: `involvedObject.name=${name}` },
  );
}

async function isUsed(right: RegExp): Promise<void> {
  await until(
    async () => [...(await bed.audited()).used].some((each) => right.test(each)),
    `${right} is used`,
  );
}

function sourceOf(name: string): Fields {
  return { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name };
}

/** @returns the handle of a snapshot of a claim's volume */
async function takeSnapshot(name: string): Promise<string> {
  const volume = await isBound(name);
  const { snapshot } = await bed
    .clientOf(CENTRAL)
    .call(
      Controller.method.createSnapshot,
      { sourceVolumeId: textAt(volume, 'spec', 'csi', 'volumeHandle'), name: `of-${name}` },
      { timeoutMs: 10_000 },
    );
  return snapshot?.snapshotId ?? '';
}

/** The content of a snapshot of this handle. */
function contentOf(snapshotHandle: string): SnapshotChanges {
  const restoreSize = 1024 ** 2;
  return {
    status: { restoreSize: '1Mi' },
    content: { source: { snapshotHandle } },
    contentStatus: { snapshotHandle, restoreSize },
  };
}

async function isReleased(name: string): Promise<void> {
  await api.until(
    `/apis/${SNAPSHOT_API}/namespaces/${namespace}/volumesnapshots/${name}`,
    ({ body }) => listAt(body, 'metadata', 'finalizers').length === 0,
  );
}

function isEmpty(list: readonly string[]): void {
  assert.equal(list.join('\n'), '');
}

/** Whether the driver answers no creation; `called` once one was asked for. */
let isSlow: boolean | 'called' = false;

/** Has the sample driver attach volumes too, and refuse those of the class `refused`. */
async function attachOrRefuse({ method, request, proceed }: DriverCall): Promise<unknown> {
  if (method === 'CreateVolume' && at(request, 'parameters', 'refused') !== undefined)
    throw new DriverStatus(Code.Internal, 'refused by the test');
  if (method === 'CreateVolume' && isSlow) {
    isSlow = 'called';
    return new Promise(() => undefined);
  }
  if (method !== 'ControllerGetCapabilities') return undefined;
  const answer = (await proceed()) as ControllerGetCapabilitiesResponse;
  const type = ControllerServiceCapability_RPC_Type.PUBLISH_UNPUBLISH_VOLUME;
  return {
    capabilities: [...answer.capabilities, { type: { case: 'rpc', value: { type } } }],
  };
}
