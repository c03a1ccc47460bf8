import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { parseRecordKeys } from '#src/records/record-seal.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { callsOf, loseAnswer, messagesOf } from '../claim-cases.ts';
import { kubeWith } from '../parts.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

const KEY = 'a'.repeat(32);
const NEXT_KEY = 'b'.repeat(32);

describe('a sealed record', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  /** The parts of a worker that has these lines in its --record-key-file; none without the flag. */
  async function worker(...lines: readonly string[]) {
    const keys = lines.length === 0 ? undefined : parseRecordKeys(lines.join('\n'));
    const records = new VolumeRecords({
      redis: rig.redis,
      prefix: 'csi',
      driver: DRIVER,
      ownMs: 60_000,
      settleMs: 60_000,
      keys: () => keys,
    });
    await records.seenDataEpoch();
    return { records };
  }
  const refused = () =>
    Promise.reject(
      new KubeError({ code: 403, reason: 'Forbidden', serverMessage: 'no', request: 'POST' }),
    );
  const change = ({ metadata: { uid } }: Claim, fields: Readonly<Record<string, string>>) =>
    rig.redis.hset(`{csi}:volume:${DRIVER}:${uid}`, fields);

  /** A claim whose CreateVolume this worker has sent once and is to be repeated. */
  async function openClaim(parts: Awaited<ReturnType<typeof worker>>): Promise<Claim> {
    const claim = await rig.claim();
    await loseAnswer(rig, claim, parts);
    return claim;
  }

  /** A claim whose record keeps the driver's answer, because its PV could not be written. */
  async function answeredClaim(parts: Awaited<ReturnType<typeof worker>>): Promise<Claim> {
    const claim = await rig.claim();
    const refusing = { ...parts, ...kubeWith(rig, { create: refused }) };
    assert.equal((await rig.provision(claim, refusing)).kind, 'retry');
    return claim;
  }

  async function assertUnused(
    claim: Claim,
    parts: Awaited<ReturnType<typeof worker>>,
    why: RegExp,
  ): Promise<void> {
    const calls = callsOf(rig, 'CreateVolume').length;
    rig.events.length = 0;
    assert.equal((await rig.provision(claim, parts)).kind, 'parked');
    assert.match(messagesOf(rig)[0] ?? '', why);
    assert.equal(callsOf(rig, 'CreateVolume').length, calls, 'CreateVolume was sent');
    assert.equal(await rig.volumeOf(claim), undefined);
    const record = await rig.record(claim.metadata.uid);
    assert.deepEqual([record['state'], record['code']], ['creating', 'UnusableRecord']);
  }

  it('is finished by another worker that has the key, its answer too', async () => {
    const repeated = await openClaim(await worker(KEY));
    const answered = await answeredClaim(await worker(KEY));
    assert.equal((await rig.provision(repeated, await worker(KEY))).kind, 'done');
    assert.equal((await rig.provision(answered, await worker(KEY))).kind, 'done');
    assert.equal(callsOf(rig, 'CreateVolume').length, 3);
  });

  it('is finished with the secret of its time though the class is gone', async () => {
    const parts = await worker(KEY);
    const claim = await openClaim(parts);
    assert.equal((await rig.provision(claim, { ...parts, classOf: () => undefined })).kind, 'done');
  });

  it('binds no claim to the volume of another one by a forged answer', async () => {
    const parts = await worker(KEY);
    const victim = await rig.claim();
    await rig.provision(victim, parts);
    const handle = ((await rig.volumeOf(victim)) as Volume).spec.csi?.volumeHandle ?? '';
    const claim = await answeredClaim(parts);
    const { ans = '' } = await rig.record(claim.metadata.uid);
    const forged = { ...(JSON.parse(ans) as object), handle };
    await change(claim, { ans: JSON.stringify(forged) });
    await assertUnused(claim, parts, /it has a seal by no key of --record-key-file/);
    await change(claim, { ans: JSON.stringify({ ...forged, seal: '' }) });
    await assertUnused(claim, parts, /it has no seal/);
  });

  it('of another claim does not pass for that of this one', async () => {
    const parts = await worker(KEY);
    const victim = await answeredClaim(parts);
    const { req = '', skel = '', seal = '', ans = '' } = await rig.record(victim.metadata.uid);
    const claim = await openClaim(parts);
    await change(claim, { req, skel, seal });
    await assertUnused(claim, parts, /it has a seal by no key of --record-key-file/);
    const second = await openClaim(parts);
    await change(second, { ans });
    await assertUnused(second, parts, /it has a seal by no key of --record-key-file/);
  });

  for (const field of ['req', 'skel', 'secret', 'seal'])
    it(`is not used if its field ${field} was changed`, async () => {
      const parts = await worker(KEY);
      const claim = await openClaim(parts);
      const other = await openClaim(parts);
      const { [field]: value = '' } = await rig.record(other.metadata.uid);
      const secret = JSON.stringify({ name: 'n', namespace: 'ns' });
      await change(claim, { [field]: field === 'secret' ? secret : value });
      await assertUnused(claim, parts, /it has a seal by no key of --record-key-file/);
    });

  it('is used after its key was replaced, as long as the file names both', async () => {
    const claim = await openClaim(await worker(KEY));
    await assertUnused(claim, await worker(NEXT_KEY), /it has a seal by no key/);
    assert.equal((await rig.provision(claim, await worker(NEXT_KEY, KEY))).kind, 'done');
    const next = await openClaim(await worker(NEXT_KEY, KEY));
    assert.equal((await rig.provision(next, await worker(NEXT_KEY))).kind, 'done');
  });

  it('is asked for where none is, unless the file says “unsealed”', async () => {
    const repeated = await openClaim(await worker());
    const answered = await answeredClaim(await worker());
    await assertUnused(repeated, await worker(KEY), /it has no seal/);
    await assertUnused(answered, await worker(KEY), /it has no seal/);
    assert.equal((await rig.provision(repeated, await worker(KEY, 'unsealed'))).kind, 'done');
    assert.equal((await rig.provision(answered, await worker(KEY, 'unsealed'))).kind, 'done');
  });

  it('with a wrong seal is not used where “unsealed” is accepted either', async () => {
    const claim = await openClaim(await worker(NEXT_KEY));
    await assertUnused(claim, await worker(KEY, 'unsealed'), /it has a seal by no key/);
  });

  it('is finished by a worker without the flag, as in a rolling update', async () => {
    const repeated = await openClaim(await worker(KEY));
    const answered = await answeredClaim(await worker(KEY));
    assert.equal((await rig.provision(repeated, await worker())).kind, 'done');
    assert.equal((await rig.provision(answered, await worker())).kind, 'done');
  });

  it('keeps its seal when a worker writes it again that Redis had lost', async () => {
    const parts = await worker(KEY);
    const claim = await openClaim(parts);
    const { seal } = await rig.record(claim.metadata.uid);
    assert.equal(seal?.length, 43);
    await rig.redis.del(`{csi}:volume:${DRIVER}:${claim.metadata.uid}`);
    await rig.redis.hset(`{csi}:blessing:${DRIVER}`, 'epoch', 'another');
    assert.equal((await parts.records.rewriteLostRecords()).length, 1);
    assert.equal((await rig.record(claim.metadata.uid))['seal'], seal);
  });
});

describe('a key file', () => {
  for (const [what, text] of [
    ['no line', '\n'],
    ['a key of 31 characters', 'a'.repeat(31)],
    ['only the word “unsealed”', 'unsealed\n'],
  ] as const)
    it(`with ${what} is refused, and its text is not quoted`, () => {
      assert.throws(
        () => parseRecordKeys(text),
        (error: Error) =>
          error.message.includes('32 characters or more') && !error.message.includes('aaaa'),
      );
    });
});
