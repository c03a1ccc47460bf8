import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Endpoints } from '#src/gateway-client/endpoints.ts';
import { nodeAddress } from '#src/gateway-client/gateway-address.ts';
import {
  checkNodeFlags,
  type NodeGatewayPool,
  openNodeGatewayPool,
} from '#src/gateway-client/node-pool.ts';
import type { Address } from '#src/runtime/address.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { Listeners } from '#src/runtime/listeners.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const IDLE_MS = 100;

describe('openNodeGatewayPool', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  const drivers = new Map<string, SampleDriver>();
  const addresses = new Map<string, Address>();
  const changes = new Listeners<string>();
  const endpoints: Endpoints = {
    addressOf: (node) => addresses.get(node),
    names: () => addresses.keys(),
    onChange: (listener) => changes.subscribe(listener),
    serverName: '',
    trouble: undefined,
    stop: () => Promise.resolve(),
  };
  let pool: NodeGatewayPool;
  const create = (node: string, name: string): Promise<unknown> =>
    pool.calls.createVolume(volumeRequest(name), {
      timeoutMs: 5_000,
      gateway: nodeAddress(node),
    });
  const listed = async (): Promise<readonly (string | undefined)[]> => {
    const names: (string | undefined)[] = [];
    let startingToken = '';
    do {
      const page = await pool.anyReplica.listVolumes({ startingToken }, { timeoutMs: 5_000 });
      names.push(...page.entries.map(({ volume }) => volume?.volumeContext['name']));
      startingToken = page.nextToken;
    } while (startingToken !== '');
    return names;
  };

  before(async () => {
    folder = await makeFolder();
    for (const node of ['a', 'b', 'c']) {
      const socket = folder.file(node);
      drivers.set(node, await startSampleDriver({ socket, dataDir: folder.file(`${node}-data`) }));
      addresses.set(node, { kind: 'unix', path: socket });
    }
    pool = openNodeGatewayPool({
      endpoints,
      security: { tls: undefined },
      idleMs: IDLE_MS,
      log: silentLog,
    });
  });
  after(async () => {
    pool.close();
    for (const driver of drivers.values()) await driver.close();
    await folder.remove();
  });

  it('connects to no gateway before it is called', () => assert.equal(pool.connections, 0));

  it('sends each call to the gateway of its node', async () => {
    await create('b', 'one');
    await create('c', 'two');
    const counts = ['a', 'b', 'c'].map((node) => drivers.get(node)?.counts.get('CreateVolume'));
    assert.deepEqual(counts, [undefined, 1, 1]);
    assert.equal(pool.connections, 2);
  });

  it('closes a connection that is idle', async () => {
    await create('a', 'three');
    await until(() => pool.connections === 0, 'all are closed', 5_000);
    await create('a', 'four');
    assert.equal(pool.connections, 1);
  });

  it('lists the volumes of one node after the other', async () => {
    assert.equal((await listed()).length, 4);
  });

  it('refuses a call to a node without a gateway as not sent, and names the node', async () => {
    const error = await failureOf(create('gone', 'five'));
    assert.equal(verdict(error), 'not-forwarded');
    assert.equal(error.codeName, 'Unavailable');
    assert.match(error.message, /no gateway is ready on node gone/);
  });

  it('refuses an address of a time before --node-deployment as not sent', async () => {
    const settings = { timeoutMs: 5_000, gateway: 'dns:///gateway:9808' };
    const error = await failureOf(pool.calls.createVolume(volumeRequest('six'), settings));
    assert.equal(verdict(error), 'not-forwarded');
    assert.match(error.message, /dns:\/\/\/gateway:9808 names no node/);
  });

  it('calls a gateway where it listens now', async () => {
    await create('a', 'seven');
    addresses.set('a', { kind: 'unix', path: folder.file('b') });
    changes.notify('a');
    const before = drivers.get('b')?.counts.get('CreateVolume') ?? 0;
    await create('a', 'eight');
    assert.equal(drivers.get('b')?.counts.get('CreateVolume'), before + 1);
    addresses.set('a', { kind: 'unix', path: folder.file('a') });
  });

  it('asks the preferred node first, and other nodes the next time', () => {
    for (let i = 0; i < 20; i += 1)
      addresses.set(`x${i}`, { kind: 'unix', path: folder.file('missing') });
    pool.prefer(nodeAddress('b'));
    const first = pool.inOrder().map(({ address }) => address);
    const second = pool.inOrder().map(({ address }) => address);
    assert.equal(first[0], 'node:b');
    assert.equal(second[0], 'node:b');
    assert.notDeepEqual(first, second);
    assert.ok(first.length <= 6);
  });
});

describe('checkNodeFlags', () => {
  it('needs the Service or the gateways, and not both', () => {
    checkNodeFlags({ gatewayService: 'a/b', nodeGateway: [] });
    checkNodeFlags({ gatewayService: '', nodeGateway: ['n=/socket'] });
    const refuses = (gatewayService: string, nodeGateway: string[]): void =>
      assert.throws(() => checkNodeFlags({ gatewayService, nodeGateway }), UsageError);
    refuses('', []);
    refuses('a/b', ['n=/socket']);
  });
});
