import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { events } from '../../../sandbox/api/kinds/events.ts';
import { volumes } from '../../../sandbox/api/kinds/volumes.ts';
import type { KubeObject } from '../../../sandbox/api/kube-object.ts';
import { parseFieldSelector, parseLabelSelector } from '../../../sandbox/api/selectors.ts';

const object = (labels: Record<string, string>, more: Record<string, string> = {}): KubeObject => ({
  kind: 'X',
  apiVersion: 'v1',
  metadata: {
    name: 'a',
    namespace: 'n',
    uid: '',
    resourceVersion: '1',
    creationTimestamp: '',
    labels,
  },
  ...more,
});

describe('parseLabelSelector', () => {
  for (const [selector, labels, matches] of [
    ['a=1', { a: '1' }, true],
    ['a==1', { a: '2' }, false],
    ['a!=1', {}, true],
    ['a in (1, 2)', { a: '2' }, true],
    ['a notin (1,2)', { a: '3' }, true],
    ['a notin (1,2)', {}, true],
    ['a in (1,2)', {}, false],
    ['a', { a: '' }, true],
    ['!a', { a: '' }, false],
    ['!a', {}, true],
    ['a>3', { a: '4' }, true],
    ['a>3', {}, false],
    ['a=1,b in (x,y),!c', { a: '1', b: 'y' }, true],
    ['example.com/a=', { 'example.com/a': '' }, true],
  ] as const) {
    it(`${selector} ${matches ? 'selects' : 'does not select'} ${JSON.stringify(labels)}`, () => {
      assert.equal(parseLabelSelector(selector)?.(object(labels)), matches);
    });
  }

  it('selects everything when it is empty', () => assert.equal(parseLabelSelector(''), undefined));
  it('refuses an invalid selector', () =>
    assert.throws(() => parseLabelSelector('a b c'), /unable to parse requirement: found 'b'/));
});

describe('parseFieldSelector', () => {
  it('selects by name and namespace', () => {
    assert.equal(
      parseFieldSelector('metadata.name=a,metadata.namespace!=x', volumes)?.(object({})),
      true,
    );
  });
  it('selects events by their reason', () =>
    assert.equal(parseFieldSelector('reason=R', events)?.(object({}, { reason: 'R' })), true));
  it('refuses a field that the kind does not support', () => {
    assert.throws(
      () => parseFieldSelector('spec.x=1', volumes),
      /is not a known field selector: only "metadata\.name"/,
    );
    assert.throws(
      () => parseFieldSelector('spec.x=1', events),
      /field label not supported: spec\.x/,
    );
    assert.throws(
      () => parseFieldSelector('toString=1', events),
      /field label not supported: toString/,
    );
  });
});
