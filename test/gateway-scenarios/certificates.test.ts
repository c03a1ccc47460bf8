import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { main } from '#src/csi-gateway/main.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { type CertificateOwner, clientTls } from '../harness/csi-certificates.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { runMain } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

const ROOT = new URL('../../../', import.meta.url);
const DOCS = readFileSync(new URL('docs/gateway.md', ROOT), 'utf8');

it('A gateway started as in docs/gateway.md allows only the listed callers', async (t) => {
  const folder = await makeFolder();
  t.after(() => folder.remove());
  const socket = folder.file('csi.sock');
  const driver = await startSampleDriver({ socket, dataDir: folder.file('data') });
  t.after(() => driver.close());
  const [, block = ''] = /without a cluster\n\n```sh\n([\s\S]+?)```/.exec(DOCS) ?? [];
  const [create = '', start = ''] = block.replaceAll('\\\n', ' ').split('\n');
  const script = fileURLToPath(new URL('k8s/gateway/', ROOT));
  const cwd = folder.path;
  await promisify(execFile)('sh', ['-c', create.replace('k8s/gateway/', script)], { cwd });
  const [program, , name, ...args] = start
    .replace('/run/csi/socket', socket)
    .replace(/:23808\b/, ':0')
    .replaceAll('=certificates/', `=${folder.file('certificates')}/`)
    .split(/ +/);
  assert.deepEqual([program, name], ['npx', 'csi-gateway']);
  const gateway = await runMain(main, args, {});
  t.after(() => gateway.stop());
  const address = parseAddress('listen', gateway.facts['listen'] ?? '');
  const mayCall = async (owner: CertificateOwner): Promise<boolean> => {
    const tls = await clientTls(folder.file('certificates'), owner);
    const client = new CsiClient({ address, tls });
    const answered = client.getCapacity({}, { timeoutMs: 30_000 });
    const result = await answered.then(
      () => true,
      () => false,
    );
    client.close();
    tls.close();
    return result;
  };
  await until(() => mayCall('jobs'), 'jobs may call');
  assert.equal(await mayCall('audit'), false);
});
