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

type Options = Parameters<typeof startPeriodicAudit>[0];

function optionsOf(ports: Partial<Options['ports']>, more: Partial<Options> = {}): Options {
  const fail = (): never => assert.fail('nothing is audited yet');
  return {
    ports: {
      csi: { listVolumes: fail },
      kube: { list: fail },
      openCreations: fail,
      ledger: { read: fail, write: fail },
      driver: 'd.example',
      ownNode: undefined,
      timeoutMs: 1_000,
      minAgeMs: 60_000,
      nowMs: () => 0,
      ...ports,
    },
    events: { record: fail },
    regarding: REGARDING,
    intervalMs: 3_600_000,
    isLeading: () => true,
    log: silentLog,
    metrics: createRegistry(),
    ...more,
  };
}

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
  const auditing = startPeriodicAudit(
    optionsOf(
      {
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
        nowMs: () => nowMs,
      },
      {
        events: { record: ({ message }) => void reported.push(message) },
        isLeading: () => isLeading,
        metrics,
      },
    ),
  );
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
