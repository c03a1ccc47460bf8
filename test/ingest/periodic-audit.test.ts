import assert from 'node:assert/strict';
import { it } from 'node:test';
import { startPeriodicAudit } from '#src/ingest/periodic-audit.ts';
import { silentLog } from '#src/runtime/log.ts';
import { createRegistry } from '#src/runtime/metrics.ts';

const failIfCalled = (): never => assert.fail('nothing is audited yet');

it('an interval of 30 days is cut to the longest timer instead of firing at once', (t) => {
  const timers = t.mock.method(globalThis, 'setInterval', () => undefined);
  startPeriodicAudit({
    ports: {
      csi: { listVolumes: failIfCalled },
      kube: { list: failIfCalled },
      openRecords: failIfCalled,
      ledger: { read: failIfCalled, write: failIfCalled },
      driver: 'd.example',
      timeoutMs: 1_000,
      minAgeMs: 0,
      nowMs: () => 0,
    },
    events: { record: failIfCalled },
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
