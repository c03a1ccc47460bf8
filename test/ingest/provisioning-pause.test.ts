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

  it('allows no new work before the Lease was seen', () => {
    assert.equal(pause.isNewWorkAllowed, false);
  });

  it('allows new work where the Lease says nothing of a drain', () => {
    pause.learn(ALLOWED, true);
    assert.equal(pause.isNewWorkAllowed, true);
  });

  it('allows no new work while sutler is drained', () => {
    pause.learn(DRAINED, true);
    assert.equal(pause.isNewWorkAllowed, false);
  });

  it('logs the begin and the end of a drain once each', () => {
    for (const each of [ALLOWED, DRAINED, DRAINED, ALLOWED, ALLOWED]) pause.learn(each, true);
    assert.equal(lines.length, 2);
    assert.match(lines[0] ?? '', /drained: nothing new is begun until sutler drain --undo/);
    assert.match(lines[1] ?? '', /the drain has ended/);
  });

  it('notes on /readyz that sutler is drained, while it is', () => {
    pause.learn(DRAINED, true);
    assert.match(pause.note ?? '', /^drained: .* sutler drain --undo$/);
    pause.learn(ALLOWED, true);
    assert.equal(pause.note, undefined);
  });

  it('knows nothing any more when this ingest does not lead', () => {
    pause.learn(ALLOWED, true);
    pause.forget();
    assert.equal(pause.isNewWorkAllowed, false);
  });

  it('learns nothing of a drain while this ingest does not lead', () => {
    pause.learn(DRAINED, false);
    assert.equal(pause.isNewWorkAllowed, false);
    assert.equal(pause.note, undefined);
  });

  it('tells its subscribers when it is allowed, and not when it is halted', () => {
    let told = 0;
    pause.allowed.subscribe(() => (told += 1));
    pause.learn(DRAINED, true);
    assert.equal(told, 0);
    pause.learn(ALLOWED, true);
    pause.learn(ALLOWED, true);
    assert.equal(told, 1);
  });

  it('tells its subscribers when another provisioner led before', () => {
    let told = 0;
    pause.afterOther.subscribe(() => (told += 1));
    pause.learn(ALLOWED, true);
    assert.equal(told, 0);
    pause.learn(OTHER, false);
    assert.equal(told, 0);
    pause.learn(ALLOWED, true);
    pause.learn(ALLOWED, true);
    assert.equal(told, 1);
  });
});
