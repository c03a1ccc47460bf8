import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import {
  FollowedObjects,
  type FollowedObjectsOptions,
} from '#src/ingest/dependencies/followed-objects.ts';
import type { Resource } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from '../../harness/until.ts';

const CLAIM = 'persistentvolumeclaims/n/a';
const VOLUME = 'persistentvolumes//pv';

describe('followed objects', () => {
  /** What the API server has, by id. */
  let stored: Record<string, string>;
  let reads: string[];
  let changed: string[];
  let trouble: string | undefined;
  /** Called in the middle of each read. */
  let duringRead: () => Promise<void>;
  let followed: FollowedObjects;
  const open = (o: Partial<FollowedObjectsOptions> = {}): FollowedObjects =>
    new FollowedObjects({
      client: {
        async list({ plural }: Resource, { namespace = '', fieldSelector = '' } = {}) {
          const id = `${plural}/${namespace}/${fieldSelector.replace('metadata.name=', '')}`;
          reads.push(id);
          const resourceVersion = stored[id];
          await duringRead();
          const items = resourceVersion === undefined ? [] : [{ metadata: { resourceVersion } }];
          return { items: items as never[], resourceVersion: '9' };
        },
      },
      trouble: () => trouble,
      onChange: (id) => void changed.push(id),
      clock: systemClock,
      log: silentLog,
      ...o,
    });
  beforeEach(() => {
    stored = { [CLAIM]: '7' };
    reads = [];
    changed = [];
    trouble = undefined;
    duringRead = () => Promise.resolve();
    followed = open();
  });
  afterEach(() => followed.stop());

  it('are read once when they are followed, and have no version before', async () => {
    const objects = new Set([CLAIM, VOLUME, 'secrets/n/s']);
    followed.follow(objects);
    assert.equal(followed.versionOf(CLAIM), undefined);
    await until(() => changed.length === 2, 'both are read');
    followed.follow(objects);
    assert.deepEqual([followed.versionOf(CLAIM), followed.versionOf(VOLUME)], ['7', '']);
    assert.deepEqual(reads, [CLAIM, VOLUME], 'and no secret');
  });

  it('have the version that the source saw last, also during a read', async () => {
    duringRead = () => Promise.resolve(followed.saw(CLAIM, '8'));
    followed.follow(new Set([CLAIM, VOLUME]));
    await until(() => changed.includes(VOLUME), 'both are read');
    assert.equal(followed.versionOf(CLAIM), '8');
    followed.saw(CLAIM, '');
    assert.equal(followed.versionOf(CLAIM), '');
  });

  it('have no version while the source can’t tell of changes', async () => {
    followed.follow(new Set([CLAIM]));
    await until(() => changed.length === 1, 'it is read');
    trouble = 'the watch is broken';
    assert.equal(followed.versionOf(CLAIM), undefined);
  });

  it('are read again after a list, which may have missed their deletion', async () => {
    followed.follow(new Set([CLAIM, VOLUME]));
    await until(() => changed.length === 2, 'both are read');
    stored = {};
    followed.listed('persistentvolumeclaims');
    await until(() => followed.versionOf(CLAIM) === '', 'its deletion is known');
    assert.equal(reads.length, 3);
  });

  it('do not have the version of a read that a list came in between', async () => {
    let isFirst = true;
    duringRead = () => {
      if (isFirst) {
        stored = {};
        followed.listed('persistentvolumeclaims');
      }
      isFirst = false;
      return Promise.resolve();
    };
    followed.follow(new Set([CLAIM]));
    await until(() => changed.length === 1, 'it is read');
    assert.equal(followed.versionOf(CLAIM), '');
  });

  it('are read until that succeeds', async () => {
    let failures = 1;
    duringRead = () => (failures-- > 0 ? Promise.reject(new Error('no route')) : Promise.resolve());
    followed.follow(new Set([CLAIM]));
    await until(() => followed.versionOf(CLAIM) === '7', 'it is read');
  });

  it('are forgotten when no key waits for them', async () => {
    followed.follow(new Set([CLAIM]));
    await until(() => changed.length === 1, 'it is read');
    followed.follow(new Set());
    followed.saw(CLAIM, '8');
    assert.equal(followed.versionOf(CLAIM), undefined);
  });

  it('are read regularly where no watch tells of changes', async () => {
    await followed.stop();
    followed = open({ pollMs: 20 });
    followed.follow(new Set([CLAIM]));
    await until(() => followed.versionOf(CLAIM) === '7', 'it is read');
    stored = { [CLAIM]: '8' };
    await until(() => followed.versionOf(CLAIM) === '8', 'it is read again');
  });
});
