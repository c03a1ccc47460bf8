import { describe, it } from 'node:test';
import { assertOnlyNamedKeys, liveAndLeave } from '../redis-faults/lives.ts';

describe('after 10,000 lives of volumes with faults', () => {
  it('Redis holds only keys that docs/redis.md names, and each ends as it says', async (t) =>
    assertOnlyNamedKeys(await liveAndLeave(10_000), (text) => t.diagnostic(text)));
});
