import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  fieldsAt,
  listAt,
  refused,
  textAt,
  type Connection,
  type Fields,
  type Reply,
  invalid,
} from './connection.ts';
import { claim, lease, paths, secret } from './objects.ts';

const MODIFIED =
  /^Operation cannot be fulfilled on secrets "a": the object has been modified; please apply your changes to the latest version and try again$/;

/** Updates of objects and of their status, and Leases. */
export function describeUpdates(api: () => Connection): void {
  /** A stored secret, and the same with another label. */
  const edited = async (): Promise<{
    readonly path: string;
    readonly stored: unknown;
    readonly next: Fields;
  }> => {
    const { secrets } = paths(await api().namespace());
    const stored = await api().create(secrets, secret('a'));
    const metadata = { ...fieldsAt(stored, 'metadata'), labels: { x: 'y' } };
    return { path: `${secrets}/a`, stored, next: { ...fieldsAt(stored), metadata } };
  };

  describe('update', () => {
    it('stores the object with a higher resourceVersion and the same uid', async () => {
      const { path, stored, next } = await edited();
      const reply = await api().call('PUT', path, { body: next });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'metadata', 'labels', 'x'), 'y');
      assert.equal(at(reply.body, 'metadata', 'uid'), at(stored, 'metadata', 'uid'));
      assert.ok(
        BigInt(textAt(reply.body, 'metadata', 'resourceVersion')) >
          BigInt(textAt(stored, 'metadata', 'resourceVersion')),
      );
    });

    it('answers 409 Conflict for a resourceVersion that is not the latest', async () => {
      const { path, next } = await edited();
      await api().call('PUT', path, { body: next });
      const stale = { ...next, data: { x: 'eA==' } };
      refused(await api().call('PUT', path, { body: stale }), {
        code: 409,
        reason: 'Conflict',
        message: MODIFIED,
      });
    });

    it('succeeds for exactly one of many writers with one resourceVersion', async () => {
      const { path, next } = await edited();
      const replies = await Promise.all(
        Array.from({ length: 8 }, (_, writer) =>
          api().call('PUT', path, { body: { ...next, data: { w: btoa(`${writer}`) } } }),
        ),
      );
      assert.deepEqual(statuses(replies), [200, 409, 409, 409, 409, 409, 409, 409]);
    });

    it('overwrites the object if no resourceVersion is given', async () => {
      const { path } = await edited();
      const reply = await api().call('PUT', path, {
        body: secret('a', { metadata: { labels: { x: 'z' } } }),
      });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'metadata', 'labels', 'x'), 'z');
    });

    it('keeps the resourceVersion if nothing changed', async () => {
      const { path, stored } = await edited();
      const reply = await api().call('PUT', path, { body: stored });
      assert.equal(
        at(reply.body, 'metadata', 'resourceVersion'),
        at(stored, 'metadata', 'resourceVersion'),
      );
    });

    it('answers 409 Conflict for the uid of another object', async () => {
      const { path, next } = await edited();
      const metadata = {
        ...fieldsAt(next, 'metadata'),
        uid: '00000000-0000-0000-0000-000000000000',
      };
      const reply = await api().call('PUT', path, { body: { ...next, metadata } });
      refused(reply, {
        code: 409,
        reason: 'Conflict',
        message: /Precondition failed: UID in precondition/,
      });
    });

    it('answers 400 for another name than that of the path', async () => {
      const { path, next } = await edited();
      const metadata = { ...fieldsAt(next, 'metadata'), name: 'b' };
      refused(await api().call('PUT', path, { body: { ...next, metadata } }), {
        code: 400,
        reason: 'BadRequest',
      });
    });

    it('answers 404 for an object that does not exist', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().call('PUT', `${secrets}/absent`, { body: secret('absent') }), {
        code: 404,
        reason: 'NotFound',
      });
    });
  });

  describe('a lease', () => {
    const now = '2026-01-02T03:04:05.678901Z';

    it('keeps microseconds in acquireTime and renewTime', async () => {
      const { leases } = paths(await api().namespace());
      const stored = await api().create(
        leases,
        lease('a', { acquireTime: now, renewTime: '2026-01-02T03:04:05.000000Z' }),
      );
      assert.equal(at(stored, 'spec', 'acquireTime'), now);
      assert.equal(at(stored, 'spec', 'renewTime'), '2026-01-02T03:04:05.000000Z');
    });

    for (const time of [
      '2026-01-02T03:04:05.678Z',
      '2026-01-02T03:04:05Z',
      '2026-01-02T03:04:05.678901234Z',
    ]) {
      it(`is refused with 400 for ${time}`, async () => {
        const { leases } = paths(await api().namespace());
        refused(await api().call('POST', leases, { body: lease('a', { renewTime: time }) }), {
          code: 400,
          reason: 'BadRequest',
        });
      });
    }

    it('cannot be replaced without a resourceVersion', async () => {
      const { leases } = paths(await api().namespace());
      await api().create(leases, lease('a'));
      const reply = await api().call('PUT', `${leases}/a`, {
        body: lease('a', { holderIdentity: 'me' }),
      });
      refused(
        reply,
        invalid(/metadata\.resourceVersion: Invalid value: .*must be specified for an update/),
      );
    });

    it('goes to one of two candidates that acquire it at once', async () => {
      const { leases } = paths(await api().namespace());
      const stored = await api().create(leases, lease('a'));
      const take = (holderIdentity: string) =>
        api().call('PUT', `${leases}/a`, {
          body: { ...fieldsAt(stored), spec: { holderIdentity, leaseDurationSeconds: 15 } },
        });
      const replies = await Promise.all([take('one'), take('two')]);
      assert.deepEqual(statuses(replies), [200, 409]);
    });

    it('may have an empty holder: it is released', async () => {
      const { leases } = paths(await api().namespace());
      await api().create(leases, lease('a', { holderIdentity: 'me', leaseDurationSeconds: 15 }));
      const reply = await api().patch('merge', `${leases}/a`, {
        spec: { holderIdentity: '', leaseDurationSeconds: 1 },
      });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'spec', 'holderIdentity'), '');
    });

    it('requires a positive leaseDurationSeconds', async () => {
      const { leases } = paths(await api().namespace());
      const reply = await api().call('POST', leases, {
        body: lease('a', { leaseDurationSeconds: 0 }),
      });
      refused(reply, invalid(/spec\.leaseDurationSeconds/));
    });
  });

  describe('status', () => {
    const condition = {
      type: 'sutler.dev/Provisioning',
      status: 'True',
      reason: 'Called',
      message: 'm',
      lastTransitionTime: '2026-01-02T03:04:05Z',
    };

    it('of a new claim does not come from the body', async () => {
      const { claims } = paths(await api().namespace());
      const stored = await api().create(claims, {
        ...claim('a'),
        status: { phase: 'Bound', capacity: { storage: '9Gi' } },
      });
      assert.deepEqual(at(stored, 'status'), { phase: 'Pending' });
    });

    it('is not changed by a patch of the object', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      const reply = await api().patch('merge', `${claims}/a`, {
        metadata: { labels: { x: 'y' } },
        status: { phase: 'Lost' },
      });
      assert.equal(at(reply.body, 'metadata', 'labels', 'x'), 'y');
      assert.equal(at(reply.body, 'status', 'phase'), 'Pending');
    });

    it('is not changed by an update of the object', async () => {
      const { claims } = paths(await api().namespace());
      const stored = await api().create(claims, claim('a'));
      const reply = await api().call('PUT', `${claims}/a`, {
        body: { ...fieldsAt(stored), status: { phase: 'Lost' } },
      });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'status', 'phase'), 'Pending');
    });

    it('has its own path, where the spec is not changed', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      const reply = await api().patch('merge', `${claims}/a/status`, {
        spec: { volumeName: 'v' },
        status: { conditions: [condition] },
      });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'spec', 'volumeName'), undefined);
      assert.equal(at(reply.body, 'status', 'conditions', 0, 'type'), condition.type);
    });

    it('can be read and replaced at its path', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      const current = await api().read(`${claims}/a/status`);
      assert.equal(at(current, 'kind'), 'PersistentVolumeClaim');
      const reply = await api().call('PUT', `${claims}/a/status`, {
        body: { ...fieldsAt(current), status: { phase: 'Lost' } },
      });
      assert.equal(at(reply.body, 'status', 'phase'), 'Lost');
    });

    it('merges conditions by type in a strategic patch', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      const set = (type: string, status: string) =>
        api().patch('strategic', `${claims}/a/status`, {
          status: { conditions: [{ ...condition, type, status }] },
        });
      await set('one', 'True');
      await set('two', 'True');
      const reply = await set('one', 'False');
      const conditions = listAt(reply.body, 'status', 'conditions').map((each) => [
        textAt(each, 'type'),
        textAt(each, 'status'),
      ]);
      assert.deepEqual(Object.fromEntries(conditions), { one: 'False', two: 'True' });
    });
  });
}

function statuses(replies: readonly Reply[]): readonly number[] {
  return replies.map(({ status }) => status).toSorted((a, b) => a - b);
}
