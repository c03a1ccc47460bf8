import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Claim, Event } from '#src/kube/objects.ts';
import { events as eventsOf } from '#src/kube/resources.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { until } from '../harness/until.ts';

/** Asks until the text is there, since a report is a second or two late. */
async function answers(ask: () => Promise<string>, expected: RegExp): Promise<string> {
  let text = '';
  await until(async () => expected.test((text = await ask())), String(expected), 10_000).catch(() =>
    assert.match(text, expected),
  );
  return text;
}

describe('why a claim is pending', () => {
  let bed: ProcessBed;
  let jobs: Running;
  let ingest: Running;
  const explain = (claim: Claim) => () => bed.operate('explain', `default/${claim.metadata.name}`);
  const status = () => bed.operate('status', '-o', 'wide');
  const pending = (fields: object): Promise<Claim> => bed.newClaim('1Mi', fields);

  before(async () => {
    bed = await ProcessBed.open();
    ingest = await bed.startIngest();
    jobs = await bed.startJobs();
  });
  after(() => bed.close());

  it('is told for several claims in one call, for programs with a version and RFC 3339', async () => {
    const made = [await bed.newClaim(), await bed.newClaim()];
    for (const claim of made) await until(() => bed.isBound(claim), 'the claims are Bound');
    const names = made.map(({ metadata }) => `default/${metadata.name}`);
    const text = await bed.operate('explain', ...names, '-o', 'json');
    const { version, claims } = JSON.parse(text) as {
      readonly version: number;
      readonly claims: readonly { readonly object: string; readonly since: string }[];
    };
    assert.deepEqual([version, claims.map(({ object }) => object)], [1, names]);
    for (const { since } of claims) assert.equal(new Date(since).toISOString(), since);
    assert.doesNotMatch(text, /sinceMs/);
  });

  it('is nothing, where it is Bound', async () => {
    const claim = await bed.newClaim();
    await until(() => bed.isBound(claim), 'the claim is Bound');
    assert.match(await explain(claim)(), /Bound to PersistentVolume/);
    await answers(status, /: fine\n/);
  });

  it('is its class, which does not exist, told once in the log, too', async () => {
    const claim = await pending({ storageClassName: 'absent' });
    await answers(
      explain(claim),
      /StorageClass "absent" does not exist\n.*\n\s+who:\s+user: name another class/,
    );
    await answers(status, /ClassNotFound/);
    const said = ingest.output.filter((line) => line.includes('the claim waits'));
    assert.match(
      said.join(''),
      /^\S+ WARN ingest: the claim waits .*"absent\\" does not exist"\n$/,
    );
    const trace = claim.metadata.uid.replaceAll('-', '');
    assert.match(said.join(''), new RegExp(`trace=${trace} `));
    assert.match(await explain(claim)(), new RegExp(`trace: +${trace}\n`));
  });

  for (const [what, cls, expected] of [
    [
      'that another driver serves it, for which no sutler works',
      { provisioner: 'other.example' },
      /class \S+ belongs to other\.example, which no sutler/,
    ],
    [
      'that it waits for its first pod',
      { provisioner: 'sample.csi.sutler.dev', volumeBindingMode: 'WaitForFirstConsumer' },
      /it waits for the first pod that uses it/,
    ],
  ] as const)
    it(`is its class: ${what}`, async () => {
      const storageClassName = what.replaceAll(/\W/g, '-');
      await bed.createClass(storageClassName, cls);
      await answers(explain(await pending({ storageClassName })), expected);
    });

  it('is a drain, told in an event too', async () => {
    await bed.operate('drain');
    const claim = await bed.newClaim();
    await answers(explain(claim), /drained by .* since .*\n.*Drained\n.*sutler drain .*--undo/);
    await until(
      async () => (await eventsAbout(claim)).some((text) => /drained by/.test(text)),
      'an event',
    );
    await bed.operate('drain', '--undo');
    await until(() => bed.isBound(claim), 'the claim is Bound');
  });

  it('is that no worker lives, told in an event and in the log, too', async () => {
    await jobs.stop();
    const claim = await bed.newClaim();
    await answers(explain(claim), /no jobs process works for driver/);
    await until(
      async () => (await eventsAbout(claim)).some((text) => /see \/readyz of jobs/.test(text)),
      'an event',
    );
    await answers(
      () => Promise.resolve(ingest.output.join('')),
      /WARN ingest: claims wait claims=\d+ reason="no jobs process works/,
    );
  });

  it('is a Redis that is away, told in an event and by a metric', async () => {
    await bed.redis.kill();
    const claim = await bed.newClaim();
    await until(
      async () => (await eventsAbout(claim)).some((text) => /waits for Redis: .*\d/.test(text)),
      'an event',
    );
    await answers(explain(claim), /Redis.*127\.0\.0\.1:\d+/);
    const metrics = async () => (await fetch(`${ingest.url}/metrics`)).text();
    await answers(metrics, /sutler_check_failed\{check="redis"\} 1/);
    await bed.redis.start();
  });

  async function eventsAbout(claim: Claim): Promise<readonly string[]> {
    const { items } = await bed.kube.list<Event>(eventsOf, { namespace: 'default' });
    return items
      .filter(({ involvedObject }) => involvedObject.uid === claim.metadata.uid)
      .map(({ message }) => message);
  }
});
