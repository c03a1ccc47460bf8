import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { KubeError } from '#src/kube/kube-error.ts';
import { decodeWatch, type WatchEvent } from '#src/kube/watch-decoder.ts';

function decodeEvents(chunks: readonly Buffer[]): WatchEvent[] {
  const events: WatchEvent[] = [];
  const decode = decodeWatch('watch x', (event) => events.push(event));
  for (const chunk of chunks) decode(chunk);
  return events;
}

describe('decodeWatch', () => {
  const names = ['plain', 'größe', '日本語', '🚀🚀', 'a"b\\c', 'line\nbreak'];
  const wire = Buffer.from(
    names.map((name) => `${JSON.stringify({ type: 'ADDED', object: { name } })}\n`).join(''),
  );
  const expected = names.map((name) => ({ type: 'ADDED', object: { name } }));

  it('decodes the same events wherever the stream is split, also inside a character', () => {
    for (let size = 1; size <= wire.length; size++) {
      const chunks: Buffer[] = [];
      for (let at = 0; at < wire.length; at += size) chunks.push(wire.subarray(at, at + size));
      assert.deepEqual(decodeEvents(chunks), expected, `pieces of ${size} bytes`);
    }
  });

  it('refuses a line that does not end', () => {
    const piece = Buffer.alloc(4 * 1024 * 1024, 'x');
    const endless = Array.from({ length: 5 }, () => piece);
    assert.throws(() => decodeEvents(endless), { name: 'KubeError', reason: 'Undecodable' });
  });

  it('refuses other lines; the error quotes them unless they may contain a secret', () => {
    const broken = [
      '{"type":"OTHER","object":{}}',
      '{"type":"ADDED"}',
      '{"type":"ADDED","object":{}',
    ];
    for (const line of ['<html>', '[]', 'null', ...broken])
      assert.throws(
        () => decodeEvents([Buffer.from(`${line}\n`)]),
        (error) =>
          error instanceof KubeError &&
          error.reason === 'Undecodable' &&
          error.message.includes(line.startsWith('{') ? 'broken JSON' : line),
      );
  });
});
