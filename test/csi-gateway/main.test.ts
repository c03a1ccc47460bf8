import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { describe, it } from 'node:test';
import { main } from '#src/csi-gateway/main.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { volumeRequest } from '../harness/csi-gateway.ts';
import { runMain } from '../harness/run-main.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';

describe('csi-gateway main', () => {
  it('becomes ready with its driver and exits with 0 on SIGTERM (Q-50, Q-52)', async (t) => {
    const folder = await makeFolder();
    t.after(() => folder.remove());
    const listen = `unix://${folder.file('gw.sock')}`;
    const csi = folder.file('csi.sock');
    const argv = [
      `--csi-address=${csi}`,
      `--listen=${listen}`,
      '--http-endpoint=127.0.0.1:0',
      '--metrics-path=/m',
      '--grace-period=1s',
    ];
    const gateway = await runMain(main, argv, {});
    const waiting = await fetch(`${gateway.url}/readyz`);
    assert.equal(waiting.status, 503);
    assert.match(await waiting.text(), /driver: .*(ENOENT|not connected)/);
    assert.equal((await fetch(`${gateway.url}/healthz`)).status, 200);

    const driver = await startSampleDriver({ socket: csi, dataDir: folder.file('data') });
    t.after(() => driver.close());
    await until(async () => (await fetch(`${gateway.url}/readyz`)).status === 200, 'ready');
    const client = new CsiClient({ address: parseAddress('gateway', listen) });
    assert.ok((await client.createVolume(volumeRequest('m'), { timeoutMs: 30_000 })).volume);
    client.close();
    const text = await (await fetch(`${gateway.url}/m`)).text();
    assert.match(text, /^csi_sidecar_operations_seconds_count/m);
    assert.match(text, /^process_start_time_seconds \d/m);
    await gateway.stop();
    assert.ok(!existsSync(folder.file('gw.sock')));
  });

  for (const [argv, message] of [
    [['--listen=tcp://x'], /--listen: "tcp:\/\/x" is not an address/],
    [['--listen=dns:///0.0.0.0:0'], /loopback only/],
    [['--listen=dns:///0.0.0.0:0', '--tls-cert=/c', '--tls-key=/k'], /--tls-client-ca missing/],
    [['--tls-cert=/c', '--tls-key=/k', '--tls-client-ca=/ca'], /--tls-allowed-names missing/],
    [
      ['--tls-cert=/c', '--tls-key=/k', '--tls-client-ca=/ca', '--tls-allowed-names=*.svc'],
      /is a pattern/,
    ],
    [
      ['--tls-cert=/c', '--tls-key=/k', '--tls-client-ca=/nonexistent', '--tls-allowed-names=a'],
      /--tls-client-ca \/nonexistent: ENOENT/,
    ],
    [['--csi-address=relative'], /--csi-address/],
  ] as const)
    it(`exits with 2 and one line for ${argv.join(' ')}`, async () => {
      const { code, err } = await runSutler(['csi-gateway', ...argv], {});
      assert.equal(code, 2);
      assert.match(err, /^sutler csi-gateway: [^\n]+\n$/);
      assert.match(err, message);
    });
});
