import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';

// Tests run from dist-dev/test/k8s.
const read = (path: string): string =>
  readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
const dockerfile = read('Dockerfile');
const stages = [...dockerfile.matchAll(/^FROM (?:--platform=\S+ )?(\S+) AS (\S+)$/gm)].map(
  ([, from = '', name = '']) => ({ from, name }),
);
const copied = [...dockerfile.matchAll(/--from=(\S+)/g)].map(([, from = '']) => from);
const outside = [...stages.map(({ from }) => from), ...copied].filter(
  (from) => !stages.some(({ name }) => name === from),
);
const nodes = outside.filter((image) => image.includes('/node:'));
const manifest = JSON.parse(read('package.json')) as {
  readonly description: string;
  readonly license: string;
  readonly engines: { readonly node: string };
  readonly repository: { readonly url: string };
};

describe('the Dockerfile', () => {
  it('begins each stage with FROM IMAGE AS NAME', () =>
    assert.equal(stages.length, dockerfile.match(/^FROM\b/gm)?.length));

  it('names the version or the day, and the digest, of each image that it begins with', () => {
    assert.ok(outside.length > 0);
    for (const image of outside)
      assert.match(
        image,
        /^docker\.io\/library\/(node:\d+\.\d+\.\d+|debian:[a-z]+-\d{8})[a-z-]*@sha256:[0-9a-f]{64}$/,
      );
  });

  it('builds with the Node that it puts into the image', () => {
    assert.equal(nodes.length, 2);
    assert.equal(nodes[0], nodes[1]);
  });

  it('uses a Node of a line that engines in package.json names', () => {
    const lines = [...manifest.engines.node.matchAll(/\^(\d+)\./g)].map(([, major]) => major);
    for (const image of nodes) assert.ok(lines.includes(/\/node:(\d+)\./.exec(image)?.[1]), image);
  });

  it('says of the image what package.json says', () => {
    const labels = [...dockerfile.matchAll(/org\.opencontainers\.image\.(\w+)="([^"]*)"/g)];
    assert.deepEqual(Object.fromEntries(labels.map(([, key, value]) => [key, value])), {
      title: 'sutler',
      description: manifest.description,
      licenses: manifest.license,
      source: manifest.repository.url.replace(/^git\+|\.git$/g, ''),
    });
  });

  it('names no user, as external-provisioner’s: the pod does, so that a driver’s socket opens', () =>
    assert.doesNotMatch(dockerfile, /^USER\b/m));

  it('has no default arguments: without any it is sutler in the place of external-provisioner', () => {
    const [, sutler = ''] = dockerfile.split(/^FROM runtime AS sutler$/m);
    assert.match(sutler, /^ENTRYPOINT \["node"/m);
    assert.doesNotMatch(sutler, /^CMD\b/m);
  });

  it('has a program at the path of external-provisioner’s, which some manifests name', () =>
    assert.match(dockerfile, / > \/csi-provisioner /));

  it('has sutler on PATH, as kubectl exec in the docs calls it', () =>
    assert.match(dockerfile, /ln -s \/csi-provisioner \/usr\/local\/bin\/sutler$/m));
});
