import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { ProvisioningPause } from '#src/ingest/provisioning-pause.ts';
import { objectId } from '#src/queue/dependency-index.ts';
import { Listeners } from '#src/runtime/listeners.ts';
import { createLogger } from '#src/runtime/log.ts';
import { PROVISIONING_PAUSE, UNTIL_PAUSE_ENDS } from '#src/records/provisioning-pause.ts';

const ID = objectId(PROVISIONING_PAUSE);
const ALLOWED = { isAfterOther: false, isDrained: false };

describe('ProvisioningPause', () => {
  let changed: string[];
  let lines: string[];
  let pause: ProvisioningPause;
  beforeEach(() => {
    changed = [];
    const changes = new Listeners<string>();
    changes.subscribe((object) => changed.push(object));
    lines = [];
    const write = (line: string) => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    pause = new ProvisioningPause(changes, log);
  });
  /** Whether the wait watch promotes the keys that wait for new work. */
  const isPromoting = (): boolean => {
    const version = pause.versionOf(ID);
    return version !== undefined && version !== UNTIL_PAUSE_ENDS[0]?.seen;
  };

  it('has no version before Redis was asked', () => {
    assert.equal(pause.versionOf(ID), undefined);
  });

  it('promotes the keys that wait for it once it is allowed', () => {
    pause.learn(ALLOWED);
    assert.equal(isPromoting(), true);
    assert.deepEqual(changed, [ID]);
  });

  it('promotes none while sutler is drained', () => {
    pause.learn({ ...ALLOWED, isDrained: true });
    assert.equal(isPromoting(), false);
    assert.notEqual(pause.versionOf(ID), undefined);
  });

  it('tells of each change once', () => {
    for (const isDrained of [true, true, false, false]) pause.learn({ ...ALLOWED, isDrained });
    assert.deepEqual(changed, [ID, ID]);
  });

  it('logs the begin and the end of a drain once each', () => {
    for (const isDrained of [false, true, true, false, false])
      pause.learn({ ...ALLOWED, isDrained });
    assert.equal(lines.length, 2);
    assert.match(lines[0] ?? '', /drained: nothing new is started until sutler drain --undo/);
    assert.match(lines[1] ?? '', /the drain has ended/);
  });

  it('notes on /readyz that sutler is drained, while it is', () => {
    pause.learn({ ...ALLOWED, isDrained: true });
    assert.match(pause.note ?? '', /^drained: .* sutler drain --undo$/);
    pause.learn(ALLOWED);
    assert.equal(pause.note, undefined);
  });

  it('knows nothing any more when this ingest does not lead', () => {
    pause.learn(ALLOWED);
    pause.forget();
    assert.equal(pause.versionOf(ID), undefined);
  });

  it('is no version of another object', () => {
    pause.learn(ALLOWED);
    assert.equal(pause.versionOf('storageclasses//fast'), undefined);
  });

  it('tells its subscribers when it is allowed, and not when it is halted', () => {
    let told = 0;
    pause.allowed.subscribe(() => (told += 1));
    pause.learn({ ...ALLOWED, isDrained: true });
    assert.equal(told, 0);
    pause.learn(ALLOWED);
    pause.learn(ALLOWED);
    assert.equal(told, 1);
  });

  it('tells its subscribers when another provisioner led before', () => {
    let told = 0;
    pause.afterOther.subscribe(() => (told += 1));
    pause.learn(ALLOWED);
    assert.equal(told, 0);
    pause.learn({ ...ALLOWED, isAfterOther: true });
    assert.equal(told, 1);
  });
});
