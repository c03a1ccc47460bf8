import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { Code, createNotSentError, tooLateDetails } from '#src/csi/status.ts';
import {
  causeNamed,
  CAUSES,
  DOUBT,
  driverCause,
  prevailing,
  statusCause,
  timeoutNote,
  VANISHED,
} from '#src/explain/causes.ts';
import type { DriverState } from '#src/explain/driver-state.ts';
import type { RunStatus } from '#src/queue/status.ts';
import { NOW_MS, status } from './run-status.ts';

const processOf = (process: string, driver = 'd.example') => ({
  process,
  instance: process,
  version: '1',
  drivers: [driver],
  lines: [],
});
const state = (fields: Partial<DriverState> = {}): DriverState => ({
  driver: 'd.example',
  processes: [processOf('ingest'), processOf('jobs')],
  isConfirmed: true,
  otherProvisioner: undefined,
  drain: undefined,
  gateway: 'unix:///g',
  driverTrouble: undefined,
  journal: {},
  ...fields,
});

const AT_LIMIT =
  'class "a" creates at most 4 volumes at once (sutler.dev/max-in-flight), 7 wait before this one';
const PAUSED = 'class "a" is paused (sutler.dev/max-in-flight: 0)';

const nameOf = (fields: Partial<DriverState>) => driverCause(state(fields))?.name;

describe('the cause for which no claim of a driver is worked on', () => {
  const cases: readonly [string | undefined, Partial<DriverState>][] = [
    [undefined, {}],
    ['NoLeader', { processes: [] }],
    ['NoLeader', { isConfirmed: false }],
    ['OtherProvisioner', { processes: [], otherProvisioner: 'x' }],
    ['Drained', { drain: { by: 'ann', atMs: NOW_MS } }],
    ['NoWorker', { processes: [processOf('ingest')] }],
    ['NoWorker', { processes: [processOf('ingest'), processOf('jobs', 'other.example')] }],
    ['Unreachable', { driverTrouble: 'the socket is not there' }],
  ];
  for (const [name = 'none', fields] of cases)
    it(`is ${name} with ${JSON.stringify(fields)}`, () =>
      assert.equal(nameOf(fields) ?? 'none', name));

  it('says who drains since when, and how that ends', () => {
    const { sentence, step } = driverCause(state({ drain: { by: 'ann', atMs: NOW_MS } })) ?? {};
    assert.equal(sentence, 'drained by ann since 2026-01-02T00:00:00Z');
    assert.equal(step, 'run: sutler drain --driver-name=d.example --undo');
  });
});

describe('the cause for which a claim is not done', () => {
  const rpc = (code: string): string => `rpc error: code = ${code} desc = no`;
  const until = (resource: string) => [{ resource, namespace: 'ns', name: 'n', seen: '' }];
  const cases: readonly [string, Partial<RunStatus>][] = [
    ['ResourceExhausted', { reason: rpc('ResourceExhausted') }],
    ['Internal', { reason: rpc('Internal') }],
    ['Unreachable', { outcome: 'later', reason: rpc('Unavailable') }],
    ['Unavailable', { reason: rpc('Unavailable') }],
    ['Secret', { outcome: 'parked', reason: 'x', until: until('secrets') }],
    ['Source', { outcome: 'parked', reason: 'x', until: until('volumesnapshots') }],
    ['Secret', { reason: 'error getting secret a in namespace b: forbidden' }],
    ['Forbidden', { reason: 'persistentvolumes is forbidden: no' }],
    ['Later', { outcome: 'later', reason: 'the claim has changed meanwhile' }],
    ['InDoubt', { outcome: 'later', reason: `${DOUBT} for 12 s` }],
    ['NotPlannable', { reason: `${VANISHED}: class "a" not found` }],
    ['Limited', { outcome: 'later', reason: AT_LIMIT, until: until('storageclasses') }],
    ['Paused', { outcome: 'later', reason: PAUSED, until: until('storageclasses') }],
    ['Refused', { reason: 'claim Selector is not supported' }],
  ];
  for (const [name, fields] of cases)
    it(`is ${name} after a run with ${JSON.stringify(fields)}`, () =>
      assert.equal(statusCause(status(fields)).name, name));

  it('is nobody’s fault while others of the class come first, and an administrator’s pause', () => {
    const of = (reason: string) => statusCause(status({ outcome: 'later', reason }));
    assert.deepEqual([of(AT_LIMIT).isFine, of(AT_LIMIT).actor], [true, 'nobody']);
    assert.deepEqual([of(PAUSED).isFine, of(PAUSED).actor], [false, 'administrator']);
    assert.equal(of(PAUSED).step, 'remove or raise sutler.dev/max-in-flight of the StorageClass');
  });

  it('is nobody’s fault while the driver works on it', () => {
    const { isFine, actor } = statusCause(status({ outcome: 'running', reason: rpc('Aborted') }));
    assert.deepEqual([isFine, actor], [true, 'nobody']);
  });

  it('is a slow driver after three calls in a row that ended at the deadline', () => {
    const reason = rpc('DeadlineExceeded') + timeoutNote(10_000);
    const after = (alike: number) =>
      statusCause(status({ outcome: 'running', count: 9, alike, reason }));
    assert.deepEqual([after(2).name, after(2).actor], ['DeadlineExceeded', 'nobody']);
    const { name, actor, step } = after(3);
    assert.deepEqual([name, actor], ['DriverSlow', 'administrator']);
    assert.equal(step, 'raise --timeout (it is 10s), or see why the driver is slow');
  });

  it('is not that the driver works on it after a call that came too late to be sent to it', () => {
    const { message } = createNotSentError({
      method: '/csi.v1.Controller/CreateVolume',
      code: Code.Aborted,
      details: tooLateDetails(12),
    });
    const { name, sentence, step } = statusCause(status({ outcome: 'running', reason: message }));
    assert.equal(name, 'Later');
    assert.match(sentence, /the driver was not called: this run was 12 ms too late/);
    assert.equal(step, 'sutler tries again by itself');
  });
});

describe('while the driver can’t be reached, the cause', () => {
  const unreachable = causeNamed('Unreachable', 'no');
  const prevails = (own: keyof typeof CAUSES) => prevailing(causeNamed(own, 'x'), unreachable);
  it('of a claim without a run is that', () =>
    assert.equal(prevailing(undefined, unreachable), unreachable));
  for (const own of ['DeadlineExceeded', 'DriverSlow', 'Aborted', 'Canceled', 'Later'] as const)
    it(`of a claim with ${own} is that`, () => assert.equal(prevails(own), unreachable));
  it('of a claim that was refused stays its own', () =>
    assert.equal(prevails('ResourceExhausted')?.name, 'ResourceExhausted'));
});

it('docs/troubleshooting.md has every cause', () => {
  const page = readFileSync(new URL('../../../docs/troubleshooting.md', import.meta.url), 'utf8');
  assert.deepEqual(
    Object.keys(CAUSES).filter((name) => !page.includes(`**${name}**`)),
    [],
  );
});
