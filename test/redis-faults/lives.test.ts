import { describe, it } from 'node:test';
import { assertOnlyNamedKeys, liveAndLeave } from './lives.ts';

describe('after 300 lives of volumes with faults', () => {
  it('Redis holds only keys that docs/redis.md names, and each ends as it says', async (t) =>
    assertOnlyNamedKeys(await liveAndLeave(300), (text) => t.diagnostic(text)));
});
