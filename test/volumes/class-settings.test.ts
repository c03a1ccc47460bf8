import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readClassSettings } from '#src/volumes/class-settings.ts';
import { aClass } from './builders.ts';

const settingsOf = (annotations: Record<string, string>) =>
  readClassSettings(
    aClass({ metadata: { name: 'c', uid: 'u', resourceVersion: '1', annotations } }),
  );
const none = { maxInFlight: undefined, creationTimeoutMs: undefined, unreadable: [] };

describe('the annotations of a class', () => {
  it('limit nothing where there are none, or no class', () => {
    assert.deepEqual(settingsOf({}), none);
    assert.deepEqual(readClassSettings(undefined), none);
  });

  it('say how many at once, and how long a creation may take', () =>
    assert.deepEqual(
      settingsOf({ 'sutler.dev/max-in-flight': '0', 'sutler.dev/creation-timeout': '20m' }),
      { maxInFlight: 0, creationTimeoutMs: 1_200_000, unreadable: [] },
    ));

  for (const [name, values] of [
    ['max-in-flight', ['', '-1', '1.5', 'four', '1e3', ' 4']],
    ['creation-timeout', ['', '20', '-5m', 'soon']],
  ] as const)
    for (const value of values)
      it(`are ignored, with a text for people, as in ${name}: "${value}"`, () => {
        const { unreadable, ...read } = settingsOf({ [`sutler.dev/${name}`]: value });
        assert.deepEqual({ ...read, unreadable: [] }, none);
        const [text = ''] = unreadable;
        assert.match(text, new RegExp(`^annotation sutler.dev/${name} is ignored: .+; write an? `));
        assert.ok(text.includes(value), text);
      });

  it('are shown cut where they are long', () => {
    const [text = ''] = settingsOf({ 'sutler.dev/max-in-flight': '9'.repeat(100_000) }).unreadable;
    assert.match(text, /100000 characters/);
    assert.ok(text.length < 250, text);
  });
});
