import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { KubeClient } from '#src/kube/client.ts';
import { statusError } from '#src/kube/kube-error.ts';
import { nameMissingRights } from '#src/kube/missing-rights.ts';
import { type Resource, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { createLogger } from '#src/runtime/log.ts';
import { ManualClock } from '../harness/lease.ts';

const RULE = "{ apiGroups: [''], resources: [persistentvolumes], verbs: [create] }";

describe('missing rights', () => {
  let answer: () => Promise<unknown>;
  let client: KubeClient;
  let stub: { inFlight: number; create: (...call: never[]) => Promise<unknown> };
  let health: HealthChecks;
  let lines: string[];
  let clock: ManualClock;
  let closers: Closers;
  beforeEach(() => {
    clock = new ManualClock();
    closers = new Closers();
    lines = [];
    health = new HealthChecks();
    const log = createLogger({
      name: 'test',
      verbosity: 0,
      format: 'text',
      write: (line) => void lines.push(line),
    });
    stub = { inFlight: 3, create: () => answer() };
    client = nameMissingRights(stub as unknown as KubeClient, { health, log, closers, clock });
  });
  afterEach(() => closers.close());

  const refuse = (message: string) => () =>
    Promise.reject(statusError('create', { code: 403, message }));
  const create = () => client.create(volumes, undefined, {}).catch((error: unknown) => error);
  const readyz = () => health.answer('ready', '').text;

  it('are named in /readyz by the rule that grants them, without failing it', async () => {
    answer = refuse('User "u" cannot create resource "persistentvolumes" in API group ""');
    assert.match(String(await create()), /cannot create resource/);
    assert.ok(readyz().includes(`[!]rights: grant this account: ${RULE}`), readyz());
    assert.equal(health.answer('ready', '').code, 200);
  });

  it('are named once in the log', async () => {
    answer = refuse('User "u" cannot create resource "persistentvolumes" in API group ""');
    await create();
    await create();
    assert.equal(lines.length, 1);
    assert.ok(lines[0]?.includes(RULE), lines[0]);
  });

  it('are forgotten when a call succeeds', async () => {
    answer = refuse('User "u" cannot create resource "persistentvolumes" in API group ""');
    await create();
    answer = () => Promise.resolve({});
    await create();
    assert.doesNotMatch(readyz(), /rights/);
  });

  it('are forgotten within a minute of the grant, if no call needs them', async () => {
    answer = refuse('User "u" cannot create resource "persistentvolumes" in API group ""');
    await create();
    const asked: unknown[] = [];
    let allowed = false;
    stub.create = (resource: Resource, _: unknown, review: unknown) => {
      asked.push([resource.kind, review]);
      return Promise.resolve({ status: { allowed } });
    };
    await clock.jump(60_000);
    assert.match(readyz(), /grant this account/);
    allowed = true;
    await clock.jump(60_000);
    assert.doesNotMatch(readyz(), /rights/);
    const attributes = { verb: 'create', group: '', resource: 'persistentvolumes' };
    const review = ['SelfSubjectAccessReview', { spec: { resourceAttributes: attributes } }];
    assert.deepEqual(asked, [review, review]);
  });

  it('are not what an admission webhook or a quota refuses', async () => {
    answer = refuse('admission webhook "w" denied the request');
    await create();
    assert.doesNotMatch(readyz(), /rights/);
  });

  it('leave the rest of the client as it is', () => assert.equal(client.inFlight, 3));
});
