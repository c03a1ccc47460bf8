/* Started by node-memory.test.ts with --expose-gc: lists the nodes of a cluster, and writes how
 * much memory they take. */
import { performance } from 'node:perf_hooks';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { namespaces } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startNodeWatch } from '#src/topology/node-watch.ts';

const [, , kubeconfig = '', driver = ''] = process.argv;
const client = createKubeClient({
  access: await loadClusterAccess({ kubeconfig, env: {} }),
  userAgent: 'test',
  log: silentLog,
});
// Opens the connection, which is not counted.
await client.list(namespaces);
const before = await usedBytes();
const watch = startNodeWatch({ client, driver, log: silentLog });
await watch.waitForSync();
const after = await usedBytes();
const startMs = performance.now();
watch.versionOf('nodes');
watch.versionOf('csinodes');
const fingerprintMs = performance.now() - startMs;
process.stdout.write(JSON.stringify({ before, after, fingerprintMs }));
await watch.stop();
await client.close();

async function usedBytes(): Promise<number> {
  for (let i = 0; i < 5; i += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
