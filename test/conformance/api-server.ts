import { describeKinds, describeUnserved } from './api-kinds.ts';
import { describePatches } from './api-patches.ts';
import { describeLists, describeWatches } from './api-reads.ts';
import { describeWrites } from './api-writes.ts';
import type { ApiServerUnderTest } from './connection.ts';
import { describeServer } from './describe-server.ts';

/** Tests how a Kubernetes API server treats the objects that sutler uses. The same suite runs on
 * the sandbox and on real servers, so that their behaviour cannot diverge. Each test creates its
 * own objects; the order does not matter. */
export function describeApiServer(name: string, open: () => Promise<ApiServerUnderTest>): void {
  describeServer(`API server: ${name}`, open, (api) => {
    describeWrites(api);
    describePatches(api);
    describeLists(api);
    describeWatches(api);
    describeKinds(api);
    describeUnserved(api);
  });
}
