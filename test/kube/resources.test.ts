import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { selectName } from '#src/kube/resources.ts';

describe('selectName', () => {
  it('escapes what has a meaning in a selector, as users may name what does not exist', () => {
    assert.equal(selectName('pvc-1.a'), 'metadata.name=pvc-1.a');
    assert.equal(selectName('a,b=c\\d'), String.raw`metadata.name=a\,b\=c\\d`);
  });
});
