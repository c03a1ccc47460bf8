import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Metadata } from '@grpc/grpc-js';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Code } from '#src/csi/status.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { failureOf, verdict, volumeRequest } from '../harness/csi-gateway.ts';
import { until } from '../harness/until.ts';

const SETTINGS = { timeoutMs: 30_000 };

describe('CsiClient', () => {
  let folder: Awaited<ReturnType<typeof makeFolder>>;
  let driver: SampleDriver;
  let client: CsiClient;
  let hook: (call: DriverCall) => unknown = () => undefined;
  const clientFor = (path: string): CsiClient => new CsiClient({ address: { kind: 'unix', path } });

  before(async () => {
    folder = await makeFolder();
    driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('data'),
      onCall: (call) => hook(call),
    });
    client = clientFor(folder.file('csi.sock'));
  });
  after(async () => {
    client.close();
    await driver.close();
    await folder.remove();
  });

  it('reads from the trailers who made the status, never both', async () => {
    for (const [trailers, expected] of [
      [{ 'sutler-driver-status': '1' }, 'driver'],
      [{ 'sutler-not-forwarded': '1' }, 'not-forwarded'],
      [{ 'sutler-driver-status': '1', 'sutler-not-forwarded': '1' }, 'not-forwarded'],
      [{ 'sutler-driver-status': 'yes' }, 'ambiguous'],
      [{}, 'ambiguous'],
    ] as const) {
      hook = () => {
        const metadata = new Metadata();
        for (const [key, value] of Object.entries(trailers)) metadata.set(key, value);
        throw new DriverStatus(Code.ResourceExhausted, 'pool is full', metadata);
      };
      const error = await failureOf(client.createVolume(volumeRequest('t'), SETTINGS));
      assert.equal(verdict(error), expected, JSON.stringify(trailers));
      assert.equal(error.message, 'rpc error: code = ResourceExhausted desc = pool is full');
      assert.equal(error.method, '/csi.v1.Controller/CreateVolume');
      assert.equal(error.details, 'pool is full');
    }
    hook = () => undefined;
  });

  it('ends at its deadline with Go’s text, ambiguous', async () => {
    hook = () => new Promise(() => undefined);
    const request = { ...volumeRequest('slow'), secrets: { pin: '123' } };
    const error = await failureOf(client.createVolume(request, { timeoutMs: 500 }));
    hook = () => undefined;
    assert.equal(
      error.message,
      'rpc error: code = DeadlineExceeded desc = context deadline exceeded',
    );
    assert.equal(verdict(error), 'ambiguous');
  });

  it('cancels a call: ambiguous once sent, not forwarded before', async () => {
    let arrived = false;
    hook = () => {
      arrived = true;
      return new Promise(() => undefined);
    };
    const cancelled = new AbortController();
    const call = failureOf(
      client.createVolume(volumeRequest('g'), { ...SETTINGS, signal: cancelled.signal }),
    );
    await until(() => arrived, 'the call is at the driver');
    cancelled.abort();
    const error = await call;
    hook = () => undefined;
    assert.equal(error.message, 'rpc error: code = Canceled desc = context canceled');
    assert.equal(verdict(error), 'ambiguous');
    const before = driver.counts.get('CreateVolume');
    assert.equal(
      verdict(
        await failureOf(
          client.createVolume(volumeRequest('g'), { ...SETTINGS, signal: cancelled.signal }),
        ),
      ),
      'not-forwarded',
    );
    assert.equal(driver.counts.get('CreateVolume'), before);
  });

  it('sends sutler-not-after and sends no call after it', async () => {
    let sent: unknown;
    hook = ({ metadata }) => {
      sent = metadata.get('sutler-not-after')[0];
      return undefined;
    };
    const notAfterMs = Date.now() + 60_000;
    await client.deleteVolume({ volumeId: 'x' }, { ...SETTINGS, notAfterMs });
    assert.equal(sent, String(notAfterMs));
    const before = driver.counts.get('DeleteVolume');
    assert.equal(
      verdict(
        await failureOf(
          client.deleteVolume({ volumeId: 'x' }, { ...SETTINGS, notAfterMs: Date.now() - 10 }),
        ),
      ),
      'not-forwarded',
    );
    assert.equal(driver.counts.get('DeleteVolume'), before);
    hook = () => undefined;
  });

  it('sends sutler-migrated if the setting is given', async () => {
    const sent: unknown[] = [];
    hook = ({ metadata }) => {
      sent.push(metadata.get('sutler-migrated'));
      return undefined;
    };
    for (const migrated of [true, false])
      await client.deleteVolume({ volumeId: 'x' }, { ...SETTINGS, migrated });
    await client.deleteVolume({ volumeId: 'x' }, SETTINGS);
    hook = () => undefined;
    assert.deepEqual(sent, [['true'], ['false'], []]);
  });

  it('connects to a socket by its path and by its URL (Q-32, Q-33)', async () => {
    for (const text of [folder.file('csi.sock'), `unix://${folder.file('csi.sock')}`]) {
      const one = new CsiClient({ address: parseAddress('csi-address', text) });
      assert.equal((await one.probe(SETTINGS)).ready, true);
      one.close();
    }
  });

  it('reports a call that can’t be sent as not forwarded', async () => {
    const before = driver.counts.get('CreateVolume');
    const tooLarge = { ...volumeRequest('a'), capacityRange: { requiredBytes: 2n ** 63n } };
    for (const call of [
      client.createVolume(tooLarge, SETTINGS),
      client.createVolume(volumeRequest('a'), { ...SETTINGS, metadata: { 'not a key': '1' } }),
    ]) {
      const error = await failureOf(call);
      assert.equal(verdict(error), 'not-forwarded');
      assert.equal(error.codeName, 'InvalidArgument');
    }
    assert.equal(driver.counts.get('CreateVolume'), before);
  });

  it('fails at once without a socket and finds it later (Q-34, Q-35, Q-36)', async () => {
    const path = folder.file('late.sock');
    const late = clientFor(path);
    const error = await failureOf(late.probe({ timeoutMs: 30_000 }));
    assert.equal(error.code, Code.Unavailable);
    assert.match(error.details, /no connection to unix:.*late.sock: connect ENOENT/);
    assert.equal(verdict(error), 'not-forwarded');
    for (let life = 0; life < 2; life += 1) {
      const restarted = await startSampleDriver({ socket: path, dataDir: folder.file('late') });
      await until(
        () =>
          late.probe({ timeoutMs: 30_000 }).then(
            () => true,
            () => false,
          ),
        'it answers',
      );
      await restarted.close();
      await until(
        async () => (await failureOf(late.probe({ timeoutMs: 30_000 }))).notForwarded,
        'its loss is noticed',
      );
    }
    late.close();
    assert.equal(
      verdict(await failureOf(late.probe(SETTINGS))),
      'not-forwarded',
      'a closed client sends nothing',
    );
  });
});
