import { describeDeletion } from './api-deletion.ts';
import { describeDiscovery } from './api-discovery.ts';
import { describeLists } from './api-lists.ts';
import { describeObjects } from './api-objects.ts';
import { describePatches } from './api-patches.ts';
import { describeRepresentations } from './api-representations.ts';
import { describeStorageObjects } from './api-storage-objects.ts';
import { describeUpdates } from './api-updates.ts';
import { describeWatches } from './api-watches.ts';
import { describeWorkloadObjects } from './api-workload-objects.ts';
import type { ApiServerUnderTest } from './connection.ts';
import { describeServer } from './describe-server.ts';

/** Tests how a Kubernetes API server treats the objects that sutler uses. The same suite runs on
 * the sandbox and on real servers, so that their behaviour cannot diverge. Each test creates its
 * own objects; the order does not matter. */
export function describeApiServer(name: string, open: () => Promise<ApiServerUnderTest>): void {
  describeServer(`API server: ${name}`, open, (api) => {
    describeObjects(api);
    describeUpdates(api);
    describePatches(api);
    describeDeletion(api);
    describeLists(api);
    describeWatches(api);
    describeStorageObjects(api);
    describeWorkloadObjects(api);
    describeRepresentations(api);
    describeDiscovery(api);
  });
}
