import { describe, it } from 'node:test';
import { assertOnlyNamedKeys, liveAndLeave } from './lives.ts';

describe('after 100 lives of volumes with faults', () => {
  it('Redis holds only keys that docs/redis.md names, and each ends as it says', async (t) =>
    assertOnlyNamedKeys(await liveAndLeave(100), (text) => t.diagnostic(text)));
});
