import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { selectedNodeOf } from '#src/volumes/eligibility.ts';
import type { DriverCall } from '../../../sandbox/driver/server.ts';
import { NodeBed } from '../../harness/node-bed.ts';
import { until } from '../../harness/until.ts';

const DRIVER = 'sample.csi.sutler.dev';
const MIB = 1024n ** 2n;

type Hook = (call: DriverCall) => unknown;

describe('a node without its gateway', () => {
  let bed: NodeBed;
  let onFoo: Hook = () => undefined;
  const deleteClaim = (name: string): Promise<unknown> =>
    bed.kube.delete<Claim>(claims, { namespace: 'default', name });
  /** Leaves a creation begun on foo, whose gateway goes away during the call. */
  const leaveOpen = async (name: string): Promise<void> => {
    onFoo = ({ method }) => (method === 'CreateVolume' ? new Promise(() => undefined) : undefined);
    const before = bed.calls('foo', 'CreateVolume');
    await bed.createClaim(name, { className: 'late', node: 'foo' });
    await until(() => bed.calls('foo', 'CreateVolume') > before, 'a call is under way');
    await bed.setGateway('foo', false);
    await until(
      async () =>
        (await bed.warnings(name)).some((each) => each.includes('no gateway is ready on node foo')),
      'the user is told to which node the claim is bound',
    );
    onFoo = () => undefined;
  };

  before(async () => {
    bed = await NodeBed.open([{ name: 'foo', onCall: (call) => onFoo(call) }, { name: 'bar' }]);
    await bed.createClass('immediate');
    await bed.createClass('late', { volumeBindingMode: 'WaitForFirstConsumer' });
    await bed.startIngest();
    await bed.startJobs();
  });
  after(() => bed.close());

  it('keeps what is begun, visibly, while claims of other nodes go on', async () => {
    await leaveOpen('open');
    await bed.createClaim('meanwhile', { className: 'late', node: 'bar' });
    await until(() => bed.isBound('meanwhile'), 'another claim is bound', 5_000);
    assert.equal(await bed.isBound('open'), false);
    await bed.setGateway('foo', true);
    await until(() => bed.isBound('open'), 'the claim is bound when the gateway is back', 10_000);
    assert.equal(bed.drivers.get('foo')?.volumes().length, 1);
  });

  it('deletes its volumes when it is back, and no other node does (F-17, F-18, R-26)', async () => {
    const deletionsOfBar = bed.calls('bar', 'DeleteVolume');
    await bed.setGateway('foo', false);
    await deleteClaim('open');
    await bed.createClaim('after', { className: 'late', node: 'bar' });
    await until(() => bed.isBound('after'), 'another claim is bound');
    assert.equal((await bed.volumes()).length, 3);
    await bed.setGateway('foo', true);
    // Not before the call of unknown end is over for sure.
    await until(async () => (await bed.volumes()).length === 2, 'the volume is deleted');
    assert.equal(bed.calls('foo', 'DeleteVolume'), 1);
    assert.equal(bed.calls('bar', 'DeleteVolume'), deletionsOfBar);
  });

  it('deletes no volume through another node’s gateway, whatever its address', async () => {
    const deletionsOfBar = bed.calls('bar', 'DeleteVolume');
    await bed.createClaim('moved', { className: 'late', node: 'foo' });
    await until(() => bed.isBound('moved'), 'the claim is bound');
    const before = (await bed.volumes()).length;
    const kept = bed.drivers.get('foo')?.volumes().length ?? 0;
    await bed.setWrongGateway('foo', 'bar');
    await deleteClaim('moved');
    await bed.createClaim('other', { className: 'late', node: 'bar' });
    await until(() => bed.isBound('other'), 'another claim is bound');
    const delayed = `${queueRoot('csi', queueName('volume', DRIVER))}delayed`;
    await until(() => bed.redis.redis.zcard(delayed), 'the deletion waits');
    assert.equal((await bed.volumes()).length, before + 1);
    assert.equal(bed.drivers.get('foo')?.volumes().length, kept);
    await bed.setGateway('foo', false);
    await bed.setGateway('foo', true);
    await until(
      async () => (await bed.volumes()).length === before,
      'the volume is deleted',
      10_000,
    );
    assert.equal(bed.drivers.get('foo')?.volumes().length, kept - 1);
    assert.equal(bed.calls('bar', 'DeleteVolume'), deletionsOfBar);
  });

  it('gives claims back for which nothing is begun, once the Node is gone', async () => {
    await bed.addNode({ name: 'brief', capacityBytes: 10n * MIB });
    await bed.setGateway('brief', false);
    await bed.createClaim('moved', { node: 'brief' });
    await until(
      async () => (await bed.redis.redis.zcard(`{csi}:waits:${DRIVER}`)) > 0,
      'the claim waits for the gateway',
    );
    await bed.deleteNode('brief');
    await until(() => bed.isBound('moved'), 'the claim is bound elsewhere', 20_000);
    const claim = await bed.claim('moved');
    assert.notEqual(claim && selectedNodeOf(claim), 'brief');
  });
});
