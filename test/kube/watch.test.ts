import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { describeCall } from '#src/kube/api-call.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { claims } from '#src/kube/resources.ts';
import { WatchDecoder, watchQuery, type WatchEvent, type WatchOptions } from '#src/kube/watch.ts';

function decode(chunks: readonly Buffer[]): WatchEvent[] {
  const events: WatchEvent[] = [];
  const decoder = new WatchDecoder('watch x', (event) => events.push(event));
  for (const chunk of chunks) decoder.push(chunk);
  return events;
}

describe('WatchDecoder', () => {
  const names = ['plain', 'größe', '日本語', '🚀🚀', 'a"b\\c', 'line\nbreak'];
  const wire = Buffer.from(
    names.map((name) => `${JSON.stringify({ type: 'ADDED', object: { name } })}\n`).join(''),
  );
  const expected = names.map((name) => ({ type: 'ADDED', object: { name } }));

  it('decodes the same events wherever the stream is split, also inside a character', () => {
    for (let size = 1; size <= wire.length; size++) {
      const chunks: Buffer[] = [];
      for (let at = 0; at < wire.length; at += size) chunks.push(wire.subarray(at, at + size));
      assert.deepEqual(decode(chunks), expected, `pieces of ${size} bytes`);
    }
  });

  it('skips empty lines and an unfinished one at the end', () => {
    assert.deepEqual(decode([Buffer.from('\n\n{"type":"BOOKMARK","object":{}}\n{"type":"ADD')]), [
      { type: 'BOOKMARK', object: {} },
    ]);
  });

  it('refuses other lines; the error quotes them unless they may contain a secret', () => {
    for (const line of [
      '<html>',
      '{"type":"OTHER","object":{}}',
      '{"type":"ADDED"}',
      '[]',
      'null',
      '{"type":"ADDED","object":{}',
    ]) {
      assert.throws(
        () => decode([Buffer.from(`${line}\n`)]),
        (error) =>
          error instanceof KubeError &&
          error.code === 0 &&
          error.reason === 'Undecodable' &&
          error.message.includes(line.startsWith('{') ? 'broken JSON' : line),
      );
    }
  });
});

describe('watchQuery', () => {
  it('contains exactly the given options', () => {
    const base = { resourceVersion: '7', idleTimeoutMs: 1, onEvent: () => {} };
    const searchOf = (o: WatchOptions): string =>
      describeCall({ verb: 'watch', resource: claims, at: {}, query: watchQuery(o) }).path.split(
        '?',
      )[1] ?? '';
    assert.equal(searchOf(base), 'watch=true&resourceVersion=7');
    assert.equal(
      searchOf({
        ...base,
        bookmarks: true,
        timeoutSeconds: 300,
        labelSelector: 'a=b',
        fieldSelector: 'metadata.name=x',
      }),
      'watch=true&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=300' +
        '&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx',
    );
  });
});
