import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ForeignLeader } from '#src/ingest/foreign-leader.ts';
import { silentLog } from '#src/runtime/log.ts';

function rig(yieldTo: (holder: string | undefined) => Promise<void> = () => Promise.resolve()) {
  const told: (string | undefined)[] = [];
  const yielding = new ForeignLeader(
    {
      setForeignLeader: (holder) => {
        told.push(holder);
        return yieldTo(holder);
      },
    },
    silentLog,
  );
  const look = async (holder: string | undefined): Promise<void> => {
    yielding.observe(holder);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { told, look };
}

describe('Yielding', () => {
  it('names a holder that is not of sutler, once', async () => {
    const { told, look } = rig();
    await look('csi-provisioner-0');
    await look('csi-provisioner-0');
    assert.deepEqual(told, ['csi-provisioner-0']);
  });

  it('takes it back when sutler leads, or nobody does', async () => {
    const { told, look } = rig();
    await look('csi-provisioner-0');
    await look('sutler_pod-1');
    await look('');
    assert.deepEqual(told, ['csi-provisioner-0', undefined]);
  });

  it('takes back at its start what an ingest before it may have left', async () => {
    const { told, look } = rig();
    await look(undefined);
    assert.deepEqual(told, [undefined]);
  });

  it('tells again what could not be told', async () => {
    let tries = 0;
    const { told, look } = rig(() =>
      (tries += 1) === 1 ? Promise.reject(new Error('down')) : Promise.resolve(),
    );
    await look('other');
    await look('other');
    await look('other');
    assert.deepEqual(told, ['other', 'other']);
  });
});
