import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import type { Volume } from '#src/kube/objects.ts';
import { secrets, volumes } from '#src/kube/resources.ts';
import type { ProcessorPorts } from '#src/jobs/ports.ts';
import { DriverStatus } from '#src/sandbox/driver/driver-status.ts';
import { openRig } from './rig.ts';
import type { Rig } from './rig.ts';

describe('delete', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const calls = (name: string) => rig.driver.calls.filter(({ method }) => method === name).length;
  const messages = () => rig.events.filter(({ type }) => type === 'Warning').map(({ reason, message }) => `${reason} ${message}`);
  const read = (volume: Volume) => rig.kube.get<Volume>(volumes, { name: volume.metadata.name });

  async function released(change: Parameters<Rig['claim']>[0] = {}): Promise<Volume> {
    const claim = await rig.claim(change);
    assert.equal((await rig.provision(claim)).kind, 'done');
    const volume = await rig.volumeOf(claim);
    assert.ok(volume);
    return rig.setPhase(volume, 'Released');
  }

  it('deletes the volume in the driver, then takes our finalizer off the PV', async () => {
    const volume = await released();
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(calls('DeleteVolume'), 1);
    const left = await read(volume);
    assert.ok(
      left === undefined || (left.metadata.deletionTimestamp !== undefined && !left.metadata.finalizers?.includes(VOLUME_FINALIZER)),
    );
  });

  it('needs one read and two writes', async () => {
    const volume = await released();
    const counted: string[] = [];
    const kube = {
      get: (...args: Parameters<Rig['kube']['get']>) => (counted.push('get'), rig.kube.get(...args)),
      create: (...args: Parameters<Rig['kube']['create']>) => (counted.push('create'), rig.kube.create(...args)),
      patch: (...args: Parameters<Rig['kube']['patch']>) => (counted.push('patch'), rig.kube.patch(...args)),
      delete: (...args: Parameters<Rig['kube']['delete']>) => (counted.push('delete'), rig.kube.delete(...args)),
    } as ProcessorPorts['kube'];
    await rig.remove(volume, { kube });
    assert.deepEqual(counted, ['get', 'delete', 'patch']);
  });

  it('leaves other finalizers alone', async () => {
    const volume = await released();
    await rig.kube.patch(
      volumes,
      { name: volume.metadata.name },
      { type: 'strategic', body: { metadata: { finalizers: ['example.com/keep'] } } },
    );
    await rig.remove(volume);
    assert.deepEqual((await read(volume))?.metadata.finalizers?.includes('example.com/keep'), true);
  });

  it('does not call the driver a second time when only the PV was left', async () => {
    const volume = await released();
    const failing = {
      get: rig.kube.get.bind(rig.kube),
      create: rig.kube.create.bind(rig.kube),
      patch: rig.kube.patch.bind(rig.kube),
      delete: () => Promise.reject(new Error('lost')),
    } as ProcessorPorts['kube'];
    await assert.rejects(rig.remove(volume, { kube: failing }), /lost/);
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(calls('DeleteVolume'), 1);
  });

  it('leaves a Bound volume alone', async () => {
    const volume = await released();
    await rig.setPhase(volume, 'Bound');
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(calls('DeleteVolume'), 0);
  });

  it('gives a Bound volume its finalizer back', async () => {
    const volume = await released();
    await rig.setPhase(volume, 'Bound');
    await rig.kube.patch(
      volumes,
      { name: volume.metadata.name },
      { type: 'merge', body: { metadata: { finalizers: ['example.com/other'] } } },
    );
    await rig.remove(volume);
    assert.deepEqual([...((await read(volume))?.metadata.finalizers ?? [])].sort(), ['example.com/other', VOLUME_FINALIZER]);
  });

  it('takes the finalizer off a volume that is to be retained, and keeps the volume', async () => {
    const volume = await released({ reclaimPolicy: 'Retain' });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal((await read(volume))?.metadata.finalizers?.includes(VOLUME_FINALIZER), false);
    assert.equal(calls('DeleteVolume'), 0);
  });

  it('waits while the volume is attached, and names the node', async () => {
    const volume = await released();
    assert.equal((await rig.remove(volume, { attachedTo: () => ['node-1'] })).kind, 'retry');
    assert.deepEqual(messages(), [`VolumeFailedDelete persistentvolume ${volume.metadata.name} is still attached to node node-1`]);
    assert.equal(calls('DeleteVolume'), 0);
  });

  it('tells the driver’s refusal once and tries again', async () => {
    const volume = await released();
    rig.onCall = ({ method }) => {
      if (method === 'DeleteVolume') throw new DriverStatus(Code.Internal, 'busy disk');
    };
    assert.equal((await rig.remove(volume)).kind, 'retry');
    assert.equal((await rig.remove(volume)).kind, 'retry');
    assert.deepEqual(messages(), ['VolumeFailedDelete rpc error: code = Internal desc = busy disk']);
    rig.onCall = () => undefined;
    assert.equal((await rig.remove(volume)).kind, 'done');
  });

  it('parks with that reason when its secret is gone, and calls nobody', async () => {
    const parameters = {
      'csi.storage.k8s.io/provisioner-secret-name': 'gone',
      'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
    };
    await rig.kube.create(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'gone', namespace: 'default' },
      data: {},
    });
    const volume = await released({ parameters });
    await rig.kube.delete(secrets, { namespace: 'default', name: 'gone' });
    assert.equal((await rig.remove(volume)).kind, 'parked');
    assert.match(messages()[0] ?? '', /secret default\/gone of this volume's deletion is not there/);
    assert.equal(calls('DeleteVolume'), 0);
  });

  it('repeats the creation of an ambiguous volume before it deletes it', async () => {
    const claim = await rig.claim();
    rig.onCall = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      return new Promise(() => undefined);
    };
    await rig.provision(claim, { timeoutMs: 200 });
    rig.onCall = () => undefined;
    await rig.provision(claim);
    const volume = await rig.volumeOf(claim);
    assert.ok(volume);
    // A worker that only looked at the PV closes the record with its mark.
    await rig.redis.hset(`{csi}:volume:sample.csi.sutler.dev:${claim.metadata.uid}`, {
      amb: '1',
      req: (await requestOf(claim.metadata.uid)) ?? '',
      skel: skeleton,
    });
    await rig.setPhase(volume, 'Released');
    const before = calls('CreateVolume');
    assert.equal((await rig.remove(volume)).kind, 'later');
    assert.equal(calls('CreateVolume'), before + 1);
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(calls('DeleteVolume'), 1);
  });

  const skeleton = JSON.stringify({ requestedBytes: '0', identity: '', volume: { metadata: { name: 'x' }, spec: {} } });
  async function requestOf(uid: string): Promise<string | undefined> {
    const { create, toBinary } = await import('@bufbuild/protobuf');
    const { CreateVolumeRequestSchema, VolumeCapability_AccessMode_Mode: Mode } = await import('#src/csi/generated/csi_pb.ts');
    const message = create(CreateVolumeRequestSchema, {
      name: `pvc-${uid}`,
      capacityRange: { requiredBytes: 1024n * 1024n },
      volumeCapabilities: [{ accessType: { case: 'mount', value: {} }, accessMode: { mode: Mode.SINGLE_NODE_WRITER } }],
    });
    return Buffer.from(toBinary(CreateVolumeRequestSchema, message)).toString('base64');
  }

  it('ends an open deletion whose PV somebody took away', async () => {
    const volume = await released();
    rig.onCall = ({ method }) => {
      if (method === 'DeleteVolume') throw new DriverStatus(Code.Internal, 'no');
    };
    await rig.remove(volume);
    await rig.kube.patch(volumes, { name: volume.metadata.name }, { type: 'merge', body: { metadata: { finalizers: null } } });
    await rig.kube.delete(volumes, { name: volume.metadata.name });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.equal(await rig.redis.hlen('{csi}:open:sample.csi.sutler.dev'), 0);
  });
});
