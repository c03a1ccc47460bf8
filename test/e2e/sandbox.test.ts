import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '#src/runtime/log.ts';
import { startSandboxApi } from '../../sandbox/api/server.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { describeClaimLifecycle } from './claim-lifecycle.ts';

describeClaimLifecycle('the sandbox', async () => {
  const api = await startSandboxApi({ log: silentLog });
  const binder = startBinder({ operations: api.operations, log: silentLog });
  const dir = await mkdtemp(join(tmpdir(), 'sutler-kubeconfig-'));
  const kubeconfig = join(dir, 'kubeconfig');
  await writeFile(kubeconfig, api.kubeconfig(), { mode: 0o600 });
  const close = async (): Promise<void> => {
    await binder.close();
    await api.close();
    await rm(dir, { recursive: true, force: true });
  };
  return { server: { url: api.url, tls: { ca: api.ca }, token: api.token, close }, kubeconfig };
});
