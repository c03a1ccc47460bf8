import { describeDeletion } from './api-deletion.ts';
import { describeDiscovery } from './api-discovery.ts';
import { describeLists } from './api-lists.ts';
import { describeObjects } from './api-objects.ts';
import { describePatches } from './api-patches.ts';
import { describeRepresentations } from './api-representations.ts';
import { describeStorageObjects } from './api-storage-objects.ts';
import { describeUpdates } from './api-updates.ts';
import { describeWatches } from './api-watches.ts';
import type { ApiServerUnderTest } from './connection.ts';
import { describeServer } from './describe-server.ts';

/** What a Kubernetes API server does with the objects that sutler uses: one suite for every server
 * that we run against, so that the one we wrote cannot drift from the real one. Each fact makes its
 * own objects; nothing depends on order. */
export function describeApiServer(name: string, open: () => Promise<ApiServerUnderTest>): void {
  describeServer(`API server: ${name}`, open, (api) => {
    describeObjects(api);
    describeUpdates(api);
    describePatches(api);
    describeDeletion(api);
    describeLists(api);
    describeWatches(api);
    describeStorageObjects(api);
    describeRepresentations(api);
    describeDiscovery(api);
  });
}
