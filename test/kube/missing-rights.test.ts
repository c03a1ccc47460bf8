import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { KubeClient } from '#src/kube/client.ts';
import { statusError } from '#src/kube/kube-error.ts';
import { nameMissingRights } from '#src/kube/missing-rights.ts';
import { volumes } from '#src/kube/resources.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { createLogger } from '#src/runtime/log.ts';

const RULE = "{ apiGroups: [''], resources: [persistentvolumes], verbs: [create] }";

describe('missing rights', () => {
  let answer: () => Promise<unknown>;
  let client: KubeClient;
  let health: HealthChecks;
  let lines: string[];
  beforeEach(() => {
    lines = [];
    health = new HealthChecks();
    const log = createLogger({
      name: 'test',
      verbosity: 0,
      format: 'text',
      write: (line) => void lines.push(line),
    });
    const stub = { inFlight: 3, create: () => answer() } as unknown as KubeClient;
    client = nameMissingRights(stub, { health, log });
  });

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

  it('are not what an admission webhook or a quota refuses', async () => {
    answer = refuse('admission webhook "w" denied the request');
    await create();
    assert.doesNotMatch(readyz(), /rights/);
  });

  it('leave the rest of the client as it is', () => assert.equal(client.inFlight, 3));
});
