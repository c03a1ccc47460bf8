import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { HintedWatch } from '#src/ingest/notices/hinted-watch.ts';
import type { Class } from '#src/kube/objects.ts';
import { silentLog } from '#src/runtime/log.ts';

const DRIVER = 'd.example';

describe('hints beside a watch', () => {
  let enqueued: string[];
  /** By id: the version that the watch has reported. */
  let watched: Record<string, string>;
  let hinted: HintedWatch;
  let end: () => void;
  beforeEach(() => {
    enqueued = [];
    watched = {};
    hinted = new HintedWatch(silentLog);
    const note = ({ name }: { readonly name: string }): void => void enqueued.push(name);
    const cls: Class = {
      metadata: { name: 'c', uid: 'c', resourceVersion: '1' },
      provisioner: DRIVER,
    };
    end = hinted.serve(
      {
        driver: {
          name: DRIVER,
          inTreeName: undefined,
          controllerCapabilities: new Set<string>(),
        },
        queue: { isAllowing: true, ensureQueued: note, enqueueNow: note, promote: note },
      },
      { versionOf: (id) => watched[id] ?? '', classes: () => [cls] },
    );
  });
  const look = (resourceVersion: string | undefined): void =>
    hinted.looked({
      target: { resource: 'persistentvolumeclaims', namespace: 'n', name: 'a' },
      object:
        resourceVersion === undefined
          ? undefined
          : {
              metadata: {
                name: 'a',
                namespace: 'n',
                uid: 'u',
                resourceVersion,
                annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER },
              },
              spec: { storageClassName: 'c' },
              status: { phase: 'Pending' },
            },
    });

  it('enqueue what the watch has not reported yet', () => {
    look('7');
    assert.deepEqual(enqueued, ['a']);
  });

  it('leave what the watch has reported to the watch', () => {
    watched['persistentvolumeclaims/n/a'] = '7';
    look('7');
    assert.deepEqual(enqueued, []);
  });

  it('enqueue nothing for an object that does not exist, or for a driver that has ended', () => {
    look(undefined);
    end();
    look('7');
    assert.deepEqual(enqueued, []);
    assert.equal(hinted.isLeading, false);
  });
});
