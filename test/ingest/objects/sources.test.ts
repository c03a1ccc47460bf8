import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { WebhookSource } from '#src/ingest/notices/webhook-source.ts';
import { Informers } from '#src/ingest/objects/informers.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { until } from '../../harness/until.ts';
import { SourceBed } from './source-bed.ts';

const LABEL = { type: 'merge', body: { metadata: { labels: { by: 'user' } } } } as const;

for (const [title, Source] of [
  ['the watches', Informers],
  ['notices and lists', WebhookSource],
] as const)
  describe(`by ${title}, ingest`, () => {
    let bed: SourceBed<Informers | WebhookSource>;
    beforeEach(async () => void (bed = await SourceBed.open<Informers | WebhookSource>(Source)));
    afterEach(() => bed.close());

    /** Brings the notice; watches show what has changed by themselves. */
    const notice = (...args: Parameters<typeof bed.look>): Promise<void> =>
      Source === WebhookSource ? bed.look(...args) : Promise.resolve();
    const claimNotice = (name: string) => notice('persistentvolumeclaims', name);
    const untilCalled = (name: string) =>
      until(() => bed.calls.some((call) => call.endsWith(` ${name}`)), `${name} is enqueued`);

    it('enqueues a claim and a Released volume that need a job', async () => {
      await bed.newClaim('of-no-class', 'missing');
      await claimNotice('of-no-class');
      const { uid } = (await bed.newClaim('a')).metadata;
      await claimNotice('a');
      await untilCalled('a');
      const { claim: _, ...key } = bed.keys.at(-1) as { claim?: string };
      assert.deepEqual(key, { kind: 'claim', uid, namespace: 'default', name: 'a' });
      await bed.newVolume('pv', 'Released');
      await notice('persistentvolumes', 'pv');
      await untilCalled('pv');
      assert.equal(bed.keys.at(-1)?.kind, 'volume');
      assert.ok(!bed.calls.join().includes('of-no-class'));
    });

    it('runs a delayed job at once when a user has edited its claim or volume', async () => {
      await bed.newVolume('pv', 'Released');
      await notice('persistentvolumes', 'pv');
      await claimNotice('before-start');
      await until(() => bed.pending() === 'before-start,pv', 'both are known');
      bed.calls.length = 0;
      await bed.editClaim('before-start', LABEL.body);
      await bed.kube.patch(volumes, { name: 'pv' }, LABEL);
      await claimNotice('before-start');
      await notice('persistentvolumes', 'pv');
      await until(() => bed.calls.includes('now before-start'), 'the claim is enqueued');
      await until(() => bed.calls.includes('now pv'), 'the volume is enqueued');
    });

    it('promotes the deletion of a volume that is being deleted', async () => {
      await bed.newVolume('pv', 'Released');
      await notice('persistentvolumes', 'pv');
      await untilCalled('pv');
      await bed.kube.delete(volumes, { name: 'pv' });
      await notice('persistentvolumes', 'pv');
      await until(() => bed.calls.includes('promote pv'), 'it is promoted');
    });

    it('runs the claims of a class at once when it is added, and tells of it', async () => {
      await bed.newClaim('other', 'never');
      await bed.newClaim('a', 'late');
      for (const name of ['other', 'a']) await claimNotice(name);
      const known = () => [...bed.source.unfinished().claims].map(({ metadata }) => metadata.name);
      await until(() => known().includes('a'), 'the claims are known');
      const before = bed.classChanges;
      await bed.newClass('late');
      await until(() => bed.classChanges > before, 'it is told');
      await until(() => bed.calls.includes('now a'), 'the claim is enqueued');
      assert.ok(!bed.calls.join().includes('other'));
    });

    it('tells what is pending, until it is done or gone', async () => {
      for (const name of ['bound', 'gone-1', 'gone-2']) await bed.newClaim(name);
      await bed.newVolume('pv', 'Released');
      await bed.outstanding();
      await until(() => bed.pending() === 'before-start,bound,gone-1,gone-2,pv', 'all pend');
      await bed.editClaim('bound', { spec: { volumeName: 'pv-of-it' } });
      await bed.kube.delete(claims, { namespace: 'default', name: 'gone-1' });
      for (const name of ['bound', 'gone-1']) await claimNotice(name);
      await until(() => bed.pending() === 'before-start,gone-2,pv', 'two are gone');
      await bed.kube.delete(claims, { namespace: 'default', name: 'gone-2' });
      await bed.setPhase('pv', 'Bound');
      await bed.outstanding();
      await until(() => bed.pending() === 'before-start', 'one is left');
    });
  });
