import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { NewWork } from '#src/ingest/new-work.ts';
import { objectId } from '#src/queue/wait-list.ts';
import { Listeners } from '#src/runtime/listeners.ts';
import { createLogger } from '#src/runtime/log.ts';
import { NEW_WORK, UNTIL_NEW_WORK } from '#src/records/new-work.ts';

const ID = objectId(NEW_WORK);
const ALLOWED = { isAfterOther: false, isDrained: false };

describe('NewWork', () => {
  let changed: string[];
  let lines: string[];
  let newWork: NewWork;
  beforeEach(() => {
    changed = [];
    const changes = new Listeners<string>();
    changes.subscribe((object) => changed.push(object));
    lines = [];
    const write = (line: string) => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    newWork = new NewWork(changes, log);
  });
  /** Whether the wait watch promotes the keys that wait for new work. */
  const isPromoting = (): boolean => {
    const version = newWork.versionOf(ID);
    return version !== undefined && version !== UNTIL_NEW_WORK[0]?.seen;
  };

  it('has no version before Redis was asked', () => {
    assert.equal(newWork.versionOf(ID), undefined);
  });

  it('promotes the keys that wait for it once it is allowed', () => {
    newWork.learn(ALLOWED);
    assert.equal(isPromoting(), true);
    assert.deepEqual(changed, [ID]);
  });

  it('promotes none while sutler is drained', () => {
    newWork.learn({ ...ALLOWED, isDrained: true });
    assert.equal(isPromoting(), false);
    assert.notEqual(newWork.versionOf(ID), undefined);
  });

  it('tells of each change once', () => {
    for (const isDrained of [true, true, false, false]) newWork.learn({ ...ALLOWED, isDrained });
    assert.deepEqual(changed, [ID, ID]);
  });

  it('logs the begin and the end of a drain once each', () => {
    for (const isDrained of [false, true, true, false, false])
      newWork.learn({ ...ALLOWED, isDrained });
    assert.equal(lines.length, 2);
    assert.match(lines[0] ?? '', /drained: nothing new is started until sutler drain --undo/);
    assert.match(lines[1] ?? '', /the drain has ended/);
  });

  it('notes on /readyz that sutler is drained, while it is', () => {
    newWork.learn({ ...ALLOWED, isDrained: true });
    assert.match(newWork.note ?? '', /^drained: .* sutler drain --undo$/);
    newWork.learn(ALLOWED);
    assert.equal(newWork.note, undefined);
  });

  it('knows nothing any more when this ingest does not lead', () => {
    newWork.learn(ALLOWED);
    newWork.forget();
    assert.equal(newWork.versionOf(ID), undefined);
  });

  it('is no version of another object', () => {
    newWork.learn(ALLOWED);
    assert.equal(newWork.versionOf('storageclasses//fast'), undefined);
  });

  it('tells its subscribers when it is allowed, and not when it is halted', () => {
    let told = 0;
    newWork.allowed.subscribe(() => (told += 1));
    newWork.learn({ ...ALLOWED, isDrained: true });
    assert.equal(told, 0);
    newWork.learn(ALLOWED);
    newWork.learn(ALLOWED);
    assert.equal(told, 1);
  });

  it('tells its subscribers when another provisioner led before', () => {
    let told = 0;
    newWork.afterOther.subscribe(() => (told += 1));
    newWork.learn(ALLOWED);
    assert.equal(told, 0);
    newWork.learn({ ...ALLOWED, isAfterOther: true });
    assert.equal(told, 1);
  });
});
