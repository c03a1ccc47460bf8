import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { namespaces } from '#src/kube/resources.ts';
import type { Closers } from '#src/runtime/closers.ts';
import type { Logger } from '#src/runtime/log.ts';
import { version } from '#src/runtime/version.ts';
import type { Testbed } from './testbed.ts';
import { startWorkload, type Workload } from './workload.ts';

const NAMESPACE = 'sutler-bench';

/** Connects to a testbed's API server, and creates the namespace and the class of the claims. */
export async function openWorkload(options: {
  readonly testbed: Testbed;
  /** Requests under way at once. */
  readonly concurrency: number;
  readonly log: Logger;
  readonly closers: Closers;
}): Promise<Workload> {
  const { testbed, concurrency, log, closers } = options;
  const client = createKubeClient({
    access: await loadClusterAccess({ kubeconfig: testbed.kubeconfig, env: {} }),
    userAgent: `sutler-bench/${version}`,
    // Above `concurrency`, so that requests do not wait in this client.
    maxInFlight: concurrency + 10,
    log,
  });
  closers.add('API client', () => client.close());
  await client.create(namespaces, undefined, {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: NAMESPACE },
  });
  const { driver } = testbed;
  const workload = await startWorkload({ client, driver, namespace: NAMESPACE, concurrency, log });
  closers.add('watches', () => workload.stop());
  // Added last, so that it runs first, while the API client is open. A cluster of KUBECONFIG keeps
  // no objects of the bench.
  closers.add('class and namespace', async () => {
    await workload.removeClass();
    await client.delete(namespaces, { name: NAMESPACE });
  });
  return workload;
}
