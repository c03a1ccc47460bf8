import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { it } from 'node:test';
import { ListVolumesResponseSchema } from '#src/csi/generated/csi_pb.ts';
import { startPeriodicAudit } from '#src/audit/periodic-audit.ts';
import { silentLog } from '#src/runtime/log.ts';
import { createRegistry } from '#src/runtime/metrics.ts';
import { until } from '../harness/until.ts';

const REGARDING = {
  kind: 'Lease',
  apiVersion: 'coordination.k8s.io/v1',
  namespace: 'ns',
  name: 'd-example',
  uid: '',
};

const failIfCalled = (): never => assert.fail('nothing is audited yet');

it('an interval of 30 days is cut to the longest timer instead of firing at once', (t) => {
  const timers = t.mock.method(globalThis, 'setInterval', () => undefined);
  startPeriodicAudit({
    ports: {
      csi: { listVolumes: failIfCalled },
      kube: { list: failIfCalled },
      openCreations: failIfCalled,
      ledger: { read: failIfCalled, write: failIfCalled },
      driver: 'd.example',
      ownNode: undefined,
      timeoutMs: 1_000,
      minAgeMs: 0,
      nowMs: () => 0,
    },
    events: { record: failIfCalled },
    regarding: REGARDING,
    intervalMs: 30 * 86_400_000,
    isLeading: () => true,
    log: silentLog,
    metrics: createRegistry(),
  });
  const delays = timers.mock.calls.map(({ arguments: [, ms] }: { arguments: unknown[] }) => ms);
  assert.deepEqual(delays, [2_147_483_647]);
});

it('after another provisioner audits at once, and reports what it left while it leads', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval', 'setTimeout'] });
  let nowMs = 1_000_000;
  let ledger: ReadonlyMap<string, number> = new Map();
  let audits = 0;
  const reported: string[] = [];
  const metrics = createRegistry();
  let isLeading = true;
  const listVolumes = () =>
    Promise.resolve(
      create(ListVolumesResponseSchema, { entries: [{ volume: { volumeId: 'left-behind' } }] }),
    );
  const auditing = startPeriodicAudit({
    ports: {
      csi: { listVolumes },
      kube: { list: () => Promise.resolve({ items: [], resourceVersion: '1' }) },
      openCreations: () => Promise.resolve([]),
      ledger: {
        read: () => Promise.resolve(ledger),
        write: (seen) => {
          audits += 1;
          ledger = seen;
          return Promise.resolve();
        },
      },
      driver: 'd.example',
      ownNode: undefined,
      timeoutMs: 1_000,
      minAgeMs: 60_000,
      nowMs: () => nowMs,
    },
    events: { record: ({ message }) => void reported.push(message) },
    regarding: REGARDING,
    intervalMs: 3_600_000,
    isLeading: () => isLeading,
    log: silentLog,
    metrics,
  });
  t.after(() => auditing.stop());
  auditing.runSoon();
  await until(() => audits === 1, 'the first audit');
  assert.deepEqual(reported, []);
  auditing.runSoon();
  nowMs += 70_000;
  t.mock.timers.tick(70_000);
  await until(() => audits === 2, 'the second audit');
  assert.match(reported.join(), /^no PersistentVolume names 1 volume of this driver/);
  const orphans = /^sutler_orphan_volumes\{driver="d.example"\} 1$/m;
  assert.match(await metrics.metrics(), orphans);
  isLeading = false;
  assert.doesNotMatch(await metrics.metrics(), orphans);
  isLeading = true;
  assert.doesNotMatch(await metrics.metrics(), orphans, 'another may have led since');
});
