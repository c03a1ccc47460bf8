import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { WaitedObjects } from '#src/ingest/notices/waited-objects.ts';
import type { ObjectRef, Resource } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from '../../harness/until.ts';

const CLAIM = 'persistentvolumeclaims/n/a';
const VOLUME = 'persistentvolumes//pv';

describe('waited objects', () => {
  let versions: Record<string, string>;
  let reads: string[];
  let changed: string[];
  let waited: WaitedObjects;
  const open = (periodMs: number): WaitedObjects =>
    new WaitedObjects({
      client: {
        // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- its type
        get<T>({ plural }: Resource, { namespace = '', name }: ObjectRef) {
          const id = `${plural}/${namespace}/${name}`;
          reads.push(id);
          const resourceVersion = versions[id];
          const object =
            resourceVersion === undefined ? undefined : { metadata: { resourceVersion } };
          return Promise.resolve(object as T | undefined);
        },
      },
      onVersion: (id) => void changed.push(id),
      clock: systemClock,
      log: silentLog,
      periodMs,
    });
  beforeEach(() => {
    versions = { [CLAIM]: '7' };
    reads = [];
    changed = [];
    waited = open(60_000);
  });
  afterEach(() => waited.stop());

  it('have a version as soon as they were read: the object’s own, or none', async () => {
    waited.follow(new Set([CLAIM, VOLUME, 'secrets/n/s']));
    assert.equal(waited.versionOf(CLAIM), undefined);
    await until(() => changed.length === 2, 'both are read');
    assert.equal(waited.versionOf(CLAIM), '7');
    assert.equal(waited.versionOf(VOLUME), '');
    assert.deepEqual(reads, [CLAIM, VOLUME], 'only claims and volumes');
  });

  it('have a new version when a hint names them', async () => {
    waited.follow(new Set([CLAIM]));
    await until(() => changed.length === 1, 'it is read');
    const target = { resource: 'persistentvolumeclaims', namespace: 'n', name: 'a' } as const;
    waited.looked({ target, object: { metadata: { resourceVersion: '8' } } });
    assert.equal(waited.versionOf(CLAIM), '8');
    waited.looked({ target, object: undefined });
    assert.equal(waited.versionOf(CLAIM), '');
    assert.deepEqual(changed, [CLAIM, CLAIM, CLAIM]);
    waited.looked({ target: { ...target, name: 'b' }, object: undefined });
    assert.equal(changed.length, 3, 'nothing waits for it');
  });

  it('are read again although no hint names them', async () => {
    await waited.stop();
    waited = open(20);
    waited.follow(new Set([CLAIM]));
    await until(() => waited.versionOf(CLAIM) === '7', 'it is read');
    versions = { [CLAIM]: '8' };
    await until(() => waited.versionOf(CLAIM) === '8', 'it is read again');
  });

  it('are forgotten when no key waits for them', async () => {
    waited.follow(new Set([CLAIM]));
    await until(() => changed.length === 1, 'it is read');
    waited.follow(new Set());
    assert.equal(waited.versionOf(CLAIM), undefined);
  });
});
