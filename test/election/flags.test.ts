import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { leaseNamespace } from '#src/election/flags.ts';

describe('leaseNamespace', () => {
  for (const [what, flag, env, namespace] of [
    ['the flag', 'flagged', { POD_NAMESPACE: 'pod' }, 'flagged'],
    ['POD_NAMESPACE without the flag', '', { POD_NAMESPACE: 'pod' }, 'pod'],
    ['"default" outside a pod', '', {}, 'default'],
  ] as const)
    it(`is ${what}`, async () => assert.equal(await leaseNamespace(flag, env), namespace));
});
