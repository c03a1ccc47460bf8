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

describe('the Dockerfile', () => {
  it('names the version or the day, and the digest, of each image that it begins with', () => {
    assert.ok(outside.length > 0);
    for (const image of outside)
      assert.match(
        image,
        /^docker\.io\/library\/(node:\d+\.\d+\.\d+|debian:[a-z]+-\d{8})[a-z-]*@sha256:[0-9a-f]{64}$/,
      );
  });

  it('has a program at the path of external-provisioner’s, which some manifests name', () =>
    assert.match(dockerfile, / > \/csi-provisioner /));

  it('has sutler on PATH, as kubectl exec in the docs calls it', () =>
    assert.match(dockerfile, /ln -s \/csi-provisioner \/usr\/local\/bin\/sutler$/m));

  it('puts nothing of the sandbox into the image of sutler', () => {
    const stageOf = (name: string): string =>
      dockerfile.split(/^(?=FROM )/m).find((text) => text.includes(` AS ${name}\n`)) ?? '';
    const contentOf = (name: string): string => {
      const text = stageOf(name);
      const from = [...text.matchAll(/(?:^FROM |--from=)(\S+)/gm)].map(([, each = '']) => each);
      return [text, ...from.filter((each) => stageOf(each) !== '').map(contentOf)].join('');
    };
    assert.match(contentOf('sample-driver'), /COPY sandbox/);
    assert.doesNotMatch(contentOf('sutler'), /sandbox|dist-dev|COPY \. /);
  });
});
