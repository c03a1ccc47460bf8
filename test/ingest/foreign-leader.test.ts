import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ForeignLeader } from '#src/ingest/foreign-leader.ts';
import { silentLog } from '#src/runtime/log.ts';

function setUp(write: (holder: string | undefined) => Promise<void> = () => Promise.resolve()) {
  const written: (string | undefined)[] = [];
  const foreignLeader = new ForeignLeader(
    {
      setForeignLeader: (holder) => {
        written.push(holder);
        return write(holder);
      },
    },
    silentLog,
  );
  const observe = async (holder: string | undefined): Promise<void> => {
    foreignLeader.observe(holder);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { written, observe };
}

describe('ForeignLeader', () => {
  it('writes a holder that is not sutler, once', async () => {
    const { written, observe } = setUp();
    await observe('csi-provisioner-0');
    await observe('csi-provisioner-0');
    assert.deepEqual(written, ['csi-provisioner-0']);
  });

  it('removes the holder when sutler leads or no process does', async () => {
    const { written, observe } = setUp();
    await observe('csi-provisioner-0');
    await observe('sutler_pod-1');
    await observe('');
    assert.deepEqual(written, ['csi-provisioner-0', undefined]);
  });

  it('removes at its start what an earlier ingest may have written', async () => {
    const { written, observe } = setUp();
    await observe(undefined);
    assert.deepEqual(written, [undefined]);
  });

  it('repeats a failed write', async () => {
    let tries = 0;
    const { written, observe } = setUp(() =>
      (tries += 1) === 1 ? Promise.reject(new Error('down')) : Promise.resolve(),
    );
    await observe('other');
    await observe('other');
    await observe('other');
    assert.deepEqual(written, ['other', 'other']);
  });
});
