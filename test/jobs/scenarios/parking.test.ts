import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { openRig, type Rig } from '../rig.ts';

const parameters = {
  'csi.storage.k8s.io/provisioner-secret-name': 'login',
  'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
};

describe('a run that can’t send its call', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  it('parks on a missing secret if ingest watches secrets', async () => {
    const claim = await rig.claim({ parameters });
    const outcome = await rig.provision(claim, { areSecretsWatched: true });
    assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
    assert.deepEqual(outcome.until, [
      { resource: 'secrets', namespace: 'default', name: 'login', seen: '' },
    ]);
    assert.deepEqual(await rig.record(claim.metadata.uid), {}, 'nothing is open');
    assert.equal(rig.driver.calls.length, 0);
  });

  it('is retried if ingest does not watch secrets', async () => {
    const claim = await rig.claim({ parameters });
    assert.equal((await rig.provision(claim)).kind, 'retry');
  });

  it('parks on a class that is gone', async () => {
    const claim = await rig.claim();
    const outcome = await rig.provision(claim, { classOf: () => undefined });
    assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
    assert.deepEqual(outcome.until, [
      { resource: 'storageclasses', name: claim.spec.storageClassName, seen: '' },
    ]);
  });

  it('reports that the driver is down for all keys if the gateway has none', async () => {
    const claim = await rig.claim();
    await rig.driver.close();
    while (rig.gateway.trouble === undefined) await rig.parts.clock.sleep(10);
    const outcome = await rig.provision(claim);
    assert.ok(outcome.kind === 'later' && outcome.isDriverDown === true, JSON.stringify(outcome));
    assert.deepEqual(await rig.record(claim.metadata.uid), {}, 'nothing is open');
  });
});
