import assert from 'node:assert/strict';
import { it } from 'node:test';
import { startPeriodicAudit } from '#src/ingest/periodic-audit.ts';
import { silentLog } from '#src/runtime/log.ts';
import { createRegistry } from '#src/runtime/metrics.ts';

const unused = (): never => assert.fail('nothing is audited yet');

it('an audit that is to come every 30 days does not come all the time', (t) => {
  const timers = t.mock.method(globalThis, 'setInterval', () => undefined);
  startPeriodicAudit({
    ports: {
      csi: { listVolumes: unused },
      kube: { list: unused },
      openRecords: unused,
      ledger: { read: unused, write: unused },
      driver: 'd.example',
      timeoutMs: 1_000,
      minAgeMs: 0,
      nowMs: () => 0,
    },
    events: { record: unused },
    regarding: {
      kind: 'Lease',
      apiVersion: 'coordination.k8s.io/v1',
      namespace: 'ns',
      name: 'd-example',
      uid: '',
    },
    intervalMs: 30 * 86_400_000,
    isLeading: () => true,
    log: silentLog,
    metrics: createRegistry(),
  });
  const delays = timers.mock.calls.map(({ arguments: [, ms] }: { arguments: unknown[] }) => ms);
  assert.deepEqual(delays, [2_147_483_647]);
});
