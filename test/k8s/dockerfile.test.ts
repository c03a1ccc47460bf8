import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';

// Tests run from dist-dev/test/k8s.
const read = (path: string): string =>
  readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
const stages = [...read('Dockerfile').matchAll(/^FROM (\S+) AS (\S+)$/gm)].map(
  ([, from = '', name = '']) => ({ from, name }),
);
const copied = [...read('Dockerfile').matchAll(/--from=(\S+)/g)].map(([, from = '']) => from);
const outside = [...stages.map(({ from }) => from), ...copied].filter(
  (from) => !stages.some(({ name }) => name === from),
);

describe('the Dockerfile', () => {
  it('begins each stage with FROM IMAGE AS NAME', () =>
    assert.equal(stages.length, read('Dockerfile').match(/^FROM\b/gm)?.length));

  it('names the version and the digest of each image that it begins with', () => {
    assert.ok(outside.length > 0);
    for (const image of outside)
      assert.match(image, /^[a-z/]+:\d+\.\d+\.\d+-[a-z-]+@sha256:[0-9a-f]{64}$/);
  });

  it('uses a Node of a line that engines in package.json names', () => {
    const { engines } = JSON.parse(read('package.json')) as {
      readonly engines: { readonly node: string };
    };
    const lines = [...engines.node.matchAll(/\^(\d+)\./g)].map(([, major]) => major);
    for (const image of outside) assert.ok(lines.includes(/^node:(\d+)\./.exec(image)?.[1]), image);
  });

  it('names no user, as external-provisioner’s: the pod does, so that a driver’s socket opens', () =>
    assert.doesNotMatch(read('Dockerfile'), /^USER\b/m));

  it('has no default arguments: without any it is sutler in the place of external-provisioner', () => {
    const [, sutler = ''] = read('Dockerfile').split(/^FROM runtime AS sutler$/m);
    assert.match(sutler, /^ENTRYPOINT \["node"/m);
    assert.doesNotMatch(sutler, /^CMD\b/m);
  });

  it('has a program at the path of external-provisioner’s, which some manifests name', () =>
    assert.match(read('Dockerfile'), / > \/csi-provisioner /));

  it('has sutler on PATH, as kubectl exec in the docs calls it', () =>
    assert.match(read('Dockerfile'), /ln -s \/csi-provisioner \/usr\/local\/bin\/sutler$/m));
});
