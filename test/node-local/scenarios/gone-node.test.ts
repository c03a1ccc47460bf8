import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { selectedNodeOf } from '#src/volumes/eligibility.ts';
import type { DriverCall } from '../../../sandbox/driver/server.ts';
import { NodeBed } from '../../harness/node-bed.ts';
import { until } from '../../harness/until.ts';

const CLI = new URL('../../../../dist/cli.js', import.meta.url).pathname;
const DRIVER = 'sample.csi.sutler.dev';
const MIB = 1024n ** 2n;

type Hook = (call: DriverCall) => unknown;

describe('a node without its gateway', () => {
  let bed: NodeBed;
  let onFoo: Hook = () => undefined;
  const open = (): Promise<number> => bed.redis.redis.hlen(`{csi}:open:${DRIVER}`);
  const deleteClaim = (name: string): Promise<unknown> =>
    bed.kube.delete<Claim>(claims, { namespace: 'default', name });
  /** Leaves a record open on foo, whose gateway goes away during the call. */
  const leaveOpen = async (name: string): Promise<void> => {
    onFoo = ({ method }) => (method === 'CreateVolume' ? new Promise(() => undefined) : undefined);
    await bed.createClaim(name, { className: 'late', node: 'foo' });
    await until(async () => (await open()) === 1, 'a record is open');
    await bed.setGateway('foo', false);
    await until(
      async () => (await bed.warnings(name)).some((each) => each.includes('sutler abandon foo')),
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

  it('keeps what is open, visibly, while claims of other nodes go on', async () => {
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
    await until(async () => (await bed.volumes()).length === 2, 'the volume is deleted', 10_000);
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
    await until(async () => (await bed.redis.redis.hlen(`{csi}:open:${DRIVER}`)) === 0, 'reverted');
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

  it('gives claims back that have no open record, once the Node is gone', async () => {
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

  describe('that is gone for good', () => {
    const abandon = (...args: string[]): Promise<{ code: number; out: string }> =>
      new Promise((resolve) => {
        const env = { PATH: process.env['PATH'], REDIS_URL: bed.redis.url };
        const flags = [
          `--kubeconfig=${bed.cluster.kubeconfig}`,
          `--driver-name=${DRIVER}`,
          '--gateway-service=default/gateways',
        ];
        const argv = [CLI, 'abandon', 'foo', ...flags, ...args];
        execFile(process.execPath, argv, { env }, (error, out, err) =>
          resolve({ code: error === null ? 0 : Number(error.code), out: out + err }),
        );
      });

    it('is abandoned only when its Node is deleted and its gateway is gone', async () => {
      const { code, out } = await abandon('--yes', '--why=burnt');
      assert.equal(code, 1, out);
      assert.match(out, /: Node foo exists: delete it first/);
      await bed.deleteNode('foo');
      assert.match(
        (await abandon('--yes', '--why=burnt')).out,
        /: the gateway of node foo is ready/,
      );
      await bed.createNode('foo');
    });

    it('is abandoned with its open records and the PVs of deleted claims', async () => {
      await bed.createClaim('deleted', { className: 'late', node: 'foo' });
      await bed.createClaim('bound', { className: 'late', node: 'foo' });
      for (const name of ['deleted', 'bound'])
        await until(() => bed.isBound(name), `${name} is bound`);
      await leaveOpen('lost');
      await deleteClaim('deleted');
      await bed.deleteNode('foo');
      await until(
        async () => (await bed.volumes()).some(({ status }) => status?.phase === 'Released'),
        'a PV is Released',
      );
      const listed = await abandon();
      assert.equal(listed.code, 0, listed.out);
      assert.match(listed.out, /^1 open volume records are dropped/);
      assert.match(listed.out, /\n1 PersistentVolumes are removed/);
      assert.match(listed.out, /claim default\/bound has it/);
      assert.match(listed.out, /nothing was changed/);
      assert.equal(await open(), 1);
      const before = (await bed.volumes()).length;
      const done = await abandon('--yes', '--why=burnt');
      assert.equal(done.code, 0, done.out);
      assert.equal((await bed.volumes()).length, before - 1);
      const notes = await bed.redis.redis.lrange(`{csi}:forgotten:${DRIVER}`, 0, -1);
      assert.equal(notes.length, 2);
      assert.ok(notes.every((note) => note.includes('"why":"burnt"')));
      await until(async () => selectedOf(await bed.claim('lost')) !== 'foo', 'the node is removed');
    });
  });
});

function selectedOf(claim: Claim | undefined): string | undefined {
  return claim && selectedNodeOf(claim);
}
