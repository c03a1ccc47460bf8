import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { ProvisioningPause } from '#src/ingest/provisioning-pause.ts';
import { createLogger } from '#src/runtime/log.ts';
import type { SeenLease } from '#src/election/lease-view.ts';

const ALLOWED = seen({});
const DRAINED = seen({ 'sutler.dev/drain': '{"by":"ann"}' });
const OTHER: SeenLease = { ...ALLOWED, otherHolder: 'upstream-0' };

function seen(annotations: Readonly<Record<string, string>>): SeenLease {
  const times = { durationMs: 15_000, acquiredMs: 0, renewedMs: 0 };
  const record = { holder: 'sutler_a', transitions: 1, ...times };
  return { lease: { record, annotations }, otherHolder: undefined };
}

describe('ProvisioningPause', () => {
  let lines: string[];
  let pause: ProvisioningPause;
  beforeEach(() => {
    lines = [];
    const write = (line: string) => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    pause = new ProvisioningPause(log);
  });

  it('allows new work once the Lease says nothing of a drain, until this ingest leads no more', () => {
    const answers = [pause.isNewWorkAllowed];
    for (const each of [ALLOWED, DRAINED, ALLOWED]) {
      pause.learn(each, true);
      answers.push(pause.isNewWorkAllowed);
    }
    pause.forget();
    answers.push(pause.isNewWorkAllowed);
    assert.deepEqual(answers, [false, true, false, true, false]);
  });

  it('logs the begin and the end of a drain once each, and notes it on /readyz meanwhile', () => {
    pause.learn(DRAINED, false);
    assert.equal(pause.note, undefined, 'this ingest does not lead');
    for (const each of [ALLOWED, DRAINED, DRAINED]) pause.learn(each, true);
    assert.match(pause.note ?? '', /^drained: .* sutler drain --undo$/);
    for (const each of [ALLOWED, ALLOWED]) pause.learn(each, true);
    assert.equal(pause.note, undefined);
    assert.equal(lines.length, 2);
    assert.match(
      lines[0] ?? '',
      /drained: sutler begins no creation or deletion until sutler drain --undo/,
    );
    assert.match(lines[1] ?? '', /the drain has ended/);
  });

  it('tells its subscribers when it is allowed, and not when it is halted', () => {
    const told: boolean[] = [];
    pause.allowed.subscribe(() => told.push(pause.isNewWorkAllowed));
    for (const each of [DRAINED, ALLOWED, ALLOWED]) pause.learn(each, true);
    assert.deepEqual(told, [true]);
  });

  it('tells its subscribers when another provisioner led before', () => {
    let told = 0;
    pause.afterOther.subscribe(() => (told += 1));
    pause.learn(ALLOWED, true);
    pause.learn(OTHER, false);
    assert.equal(told, 0);
    for (const each of [ALLOWED, ALLOWED]) pause.learn(each, true);
    assert.equal(told, 1);
  });
});
