import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { selectedNodeOf } from '#src/volumes/eligibility.ts';
import type { DriverCall } from '../../../sandbox/driver/server.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { NODE_KEY, NodeBed } from '../../harness/node-bed.ts';
import { until } from '../../harness/until.ts';

const MIB = 1024n ** 2n;
const SELECTED = 'volume.kubernetes.io/selected-node';

type Hook = (call: DriverCall) => unknown;

describe('a claim of a driver that runs on each node', () => {
  let bed: NodeBed;
  let onFoo: Hook = () => undefined;

  before(async () => {
    bed = await NodeBed.open([
      { name: 'foo', capacityBytes: 10n * MIB, onCall: (call) => onFoo(call) },
      { name: 'bar', capacityBytes: 100n * MIB },
    ]);
    await bed.createClass('immediate');
    await bed.createClass('late', { volumeBindingMode: 'WaitForFirstConsumer' });
    await bed.startIngest();
    await bed.startJobs();
  });
  after(() => bed.close());

  const nodeOf = async (name: string): Promise<string | undefined> => {
    const claim = await bed.claim(name);
    return claim && selectedNodeOf(claim);
  };

  it('is created on its selected node, and only that node is asked for (B-28, B-31)', async () => {
    await bed.createClaim('selected', { className: 'late', node: 'foo' });
    await until(() => bed.isBound('selected'), 'the claim is bound');
    assert.equal(bed.drivers.get('foo')?.volumes().length, 1);
    const [volume] = await bed.volumes();
    assert.deepEqual(volume?.spec.nodeAffinity?.required?.nodeSelectorTerms, [
      { matchExpressions: [{ key: NODE_KEY, operator: 'In', values: ['foo'] }] },
    ]);
    const { volumeAttributes = {} } = volume?.spec.csi ?? {};
    assert.match(volumeAttributes['storage.kubernetes.io/csiProvisionerIdentity'] ?? '', /-foo$/);
  });

  // The processes have no NODE_NAME.
  it('gets a node with room without delay, if it may be bound at once (A-42, B-32, R-34)', async () => {
    await bed.createClaim('chosen', { storage: '50Mi' });
    await until(() => bed.isBound('chosen'), 'the claim is bound');
    assert.equal(await nodeOf('chosen'), 'bar');
  });

  it('is checked before any node is asked (R-33)', async () => {
    const before = bed.calls('bar', 'GetCapacity');
    await bed.createClaim('selecting', { selector: { matchLabels: { a: 'b' } } });
    await until(async () => (await bed.warnings('selecting')).length > 0, 'a warning');
    const [warning] = await bed.warnings('selecting');
    assert.match(warning ?? '', /^claim Selector is not supported; /);
    assert.equal(bed.calls('bar', 'GetCapacity'), before);
    assert.equal(await nodeOf('selecting'), '');
  });

  it('is left alone while its node has no gateway of ours (B-30)', async () => {
    await bed.createNode('elsewhere');
    await bed.createClaim('foreign', { node: 'elsewhere' });
    await bed.createClaim('other');
    await until(() => bed.isBound('other'), 'another claim is bound');
    await until(
      async () =>
        (await reasonOf(bed, 'foreign')).includes('no gateway is ready on node elsewhere'),
      'the reason is stored',
    );
    assert.equal(await nodeOf('foreign'), 'elsewhere');
    assert.deepEqual(await bed.warnings('foreign'), []);
  });

  it('is told in one warning, with numbers, that no node has room (B-33)', async () => {
    await bed.createClaim('large', { storage: '1Gi' });
    await until(async () => (await bed.warnings('large')).length > 0, 'a warning');
    assert.match(
      (await bed.warnings('large'))[0] ?? '',
      /^no node has room for 1073741824 bytes: 2 were asked, and the most that one has is \d+ bytes, on node bar; /,
    );
    assert.equal(await nodeOf('large'), '');
  });

  it('is tried again within seconds when a volume is deleted', async () => {
    await bed.createClaim('second', { storage: '90Mi' });
    await until(async () => (await bed.warnings('second')).length > 0, 'a warning');
    await bed.kube.delete(claims, { namespace: 'default', name: 'chosen' });
    await until(() => bed.isBound('second'), 'the claim is bound', 10_000);
    assert.equal(await nodeOf('second'), 'bar');
  });

  it('goes to another node if the driver refuses it for want of room (R-32)', async () => {
    onFoo = (call) =>
      call.method === 'GetCapacity' ? { availableCapacity: 2n ** 50n } : undefined;
    await bed.addNode({ name: 'wide', capacityBytes: 200n * MIB });
    // With other parameters, so that no answer of a moment ago is used.
    await bed.createClass('other', { parameters: { note: 'other' } });
    await bed.createClaim('refused', { storage: '150Mi', className: 'other' });
    await until(() => bed.isBound('refused'), 'the claim is bound');
    assert.equal(await nodeOf('refused'), 'wide');
    await until(
      async () => (await bed.warnings('refused'))[0]?.includes('code = ResourceExhausted'),
      'the refusal is told',
    );
    onFoo = () => undefined;
  });

  it('keeps its node if the driver refuses it for another reason (R-32)', async () => {
    onFoo = ({ method }) => {
      if (method === 'CreateVolume') throw new DriverStatus(3, 'no such file system');
    };
    await bed.createClaim('kept', { className: 'late', node: 'foo' });
    await until(async () => (await bed.warnings('kept')).length > 0, 'a warning');
    assert.equal(await nodeOf('kept'), 'foo');
    onFoo = () => undefined;
  });

  it('is looked at again if another provisioner selects its node meanwhile', async () => {
    onFoo = async ({ method }) => {
      if (method !== 'GetCapacity') return;
      const body = { metadata: { annotations: { [SELECTED]: 'elsewhere' } } };
      const ref = { namespace: 'default', name: 'contested' };
      await bed.kube.patch(claims, ref, { type: 'merge', body });
    };
    await bed.createClass('asked', { parameters: { note: 'asked' } });
    await bed.createClaim('contested', { storage: '2Mi', className: 'asked' });
    await until(
      async () => (await reasonOf(bed, 'contested')).includes('on node elsewhere'),
      'the claim is left to the other provisioner',
    );
    assert.equal(await nodeOf('contested'), 'elsewhere');
    onFoo = () => undefined;
  });

  it('is created on a node that comes later, if no other has room', async () => {
    await bed.createClaim('later', { storage: '500Mi' });
    await until(async () => (await bed.warnings('later')).length > 0, 'a warning');
    await bed.addNode({ name: 'huge', capacityBytes: 600n * MIB });
    await until(() => bed.isBound('later'), 'the claim is bound', 10_000);
  });

  it('gets no node that its class does not allow (B-35)', async () => {
    const matchLabelExpressions = [{ key: NODE_KEY, values: ['nowhere'] }];
    await bed.createClass('limited', { allowedTopologies: [{ matchLabelExpressions }] });
    const before = bed.calls('foo', 'GetCapacity');
    await bed.createClaim('excluded', { className: 'limited' });
    await until(async () => (await bed.warnings('excluded')).length > 0, 'a warning');
    assert.match((await bed.warnings('excluded'))[0] ?? '', /^none of the 4 nodes with a gateway/);
    assert.equal(await nodeOf('excluded'), '');
    assert.equal(bed.calls('foo', 'GetCapacity'), before);
  });

  it('may have a node that refused a claim of another class for want of room', async () => {
    onFoo = ({ method, request }) => {
      const { parameters } = request as CreateVolumeRequest;
      if (method === 'CreateVolume' && parameters['kind'] === 'fast')
        throw new DriverStatus(8, 'no room on the fast disks');
    };
    const allowedTopologies = [{ matchLabelExpressions: [{ key: NODE_KEY, values: ['foo'] }] }];
    for (const kind of ['fast', 'slow'])
      await bed.createClass(kind, { parameters: { kind }, allowedTopologies });
    await bed.createClaim('on-fast', { className: 'fast' });
    await until(async () => (await bed.warnings('on-fast')).length > 1, 'no node has room');
    await bed.createClaim('on-slow', { className: 'slow' });
    await until(() => bed.isBound('on-slow'), 'the claim is bound', 10_000);
    assert.deepEqual(await bed.warnings('on-slow'), []);
    onFoo = () => undefined;
  });

  it('keeps no room reserved when all is done', async () => {
    await until(
      async () => (await bed.redis.redis.zcard('{csi}:room-expiry:sample.csi.sutler.dev')) === 0,
      'no reservation is left',
    );
    assert.ok((await bed.kube.list(volumes, {})).items.length > 0);
  });
});

describe('with --node-deployment', () => {
  it('allowed topologies are ignored for a driver without topology (B-34)', async () => {
    const bed = await NodeBed.open([{ name: 'foo', hasTopology: false }]);
    const matchLabelExpressions = [{ key: 'key', values: ['foo'] }];
    await bed.createClass('limited', { allowedTopologies: [{ matchLabelExpressions }] });
    await bed.startIngest();
    await bed.startJobs();
    await bed.createClaim('any', { className: 'limited' });
    await until(() => bed.isBound('any'), 'the claim is bound');
    const claim = await bed.claim('any');
    assert.equal(claim && selectedNodeOf(claim), 'foo');
    await bed.close();
  });

  it('and without immediate binding, a claim without a node waits (B-29)', async () => {
    const bed = await NodeBed.open([{ name: 'foo' }]);
    await bed.createClass('immediate');
    await bed.startIngest();
    await bed.startJobs('--node-deployment-immediate-binding=false');
    await bed.createClaim('waiting');
    await bed.createClaim('selected', { node: 'foo' });
    await until(() => bed.isBound('selected'), 'the claim with a node is bound');
    assert.equal(await bed.isBound('waiting'), false);
    const body = { metadata: { annotations: { [SELECTED]: 'foo' } } };
    await bed.kube.patch(
      claims,
      { namespace: 'default', name: 'waiting' },
      { type: 'merge', body },
    );
    await until(() => bed.isBound('waiting'), 'the claim is bound when it has a node');
    await bed.close();
  });
});

/** Why the key of a claim waits, as Redis has it. */
async function reasonOf(bed: NodeBed, name: string): Promise<string> {
  const uid = (await bed.claim(name))?.metadata.uid ?? '';
  const status = await bed.redis.redis.hgetall(`{csi}:status:sample.csi.sutler.dev:${uid}`);
  return status['reason'] ?? '';
}
