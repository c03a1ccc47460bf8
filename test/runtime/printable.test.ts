import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { escapeControls } from '#src/runtime/printable.ts';

describe('escapeControls', () => {
  it('escapes every control character, invisible character and line separator', () => {
    const codes = [
      ...Array.from({ length: 0x20 }, (_, code) => code),
      ...Array.from({ length: 0x21 }, (_, i) => 0x7f + i),
      0x200b,
      0x200e,
      0x200f,
      0x202a,
      0x202e,
      0x2066,
      0x2069,
      0x2028,
      0x2029,
      0xfeff,
    ];
    for (const code of codes)
      assert.equal(
        escapeControls(`a${String.fromCharCode(code)}b`),
        `a\\u${code.toString(16).padStart(4, '0')}b`,
      );
  });

  it('escapes an invisible character beyond 16 bits as a pair', () => {
    assert.equal(escapeControls('\u{e0041}'), '\\udb40\\udc41');
  });

  it('keeps all other text', () => {
    const text = 'Grüße, 東京 🎉 "quoted" \\ and (1 + 2)';
    assert.equal(escapeControls(text), text);
  });
});
