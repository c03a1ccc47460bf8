import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, secrets } from '#src/kube/resources.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { until } from '../harness/until.ts';

describe('sutler retry', () => {
  let bed: ProcessBed;
  let fault: number | undefined;
  let claim: Claim;
  before(async () => {
    bed = await ProcessBed.open({
      onCall({ method }) {
        if (method === 'CreateVolume' && fault !== undefined) throw new DriverStatus(fault, 'no');
        return undefined;
      },
    });
    await bed.startIngest();
    await bed.startJobs('--retry-interval-start=1h', '--retry-interval-max=1h');
    const login = 'csi.storage.k8s.io/provisioner-secret';
    const parameters = { [`${login}-name`]: 'login', [`${login}-namespace`]: 'default' };
    await bed.createClass('locked', { provisioner: DRIVER, parameters });
  });
  after(() => bed.close());
  beforeEach(() => (fault = undefined));

  const isPending = async (cause: string): Promise<boolean> =>
    (await bed.operate('status')).includes(`pending: ${cause}`);
  const nameOf = ({ metadata }: Claim): string => `default/${metadata.name}`;

  it('has a claim Bound at once when its secret is there', async () => {
    claim = await bed.newClaim('1Mi', { storageClassName: 'locked' });
    await until(() => isPending('Secret'), 'it waits for its secret');
    await bed.kube.create(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'login', namespace: 'default' },
      data: { key: 'dmFsdWU=' },
    });
    assert.equal(await bed.operate('retry', nameOf(claim)), `${nameOf(claim)}: tried now\n`);
    await until(() => bed.isBound(claim), 'it is Bound');
  });

  for (const filter of ['--cause=ResourceExhausted', '--class=sample', '--all'])
    it(`tries what ${filter} finds`, async () => {
      fault = Code.ResourceExhausted;
      claim = await bed.newClaim();
      await until(() => isPending('ResourceExhausted'), 'it is refused');
      fault = undefined;
      for (const other of ['--cause=Secret', '--class=locked'])
        assert.match(await bed.operate('retry', other), /no such claim or volume is pending here/);
      assert.equal(await bed.operate('retry', filter), `${nameOf(claim)}: tried now\n`);
      await until(() => bed.isBound(claim), 'it is Bound');
    });

  it('says of a claim that has no job what it waits for', async () => {
    claim = await bed.newClaim('1Mi', { storageClassName: 'absent' });
    await until(() => isPending('ClassNotFound'), 'it waits for its class');
    assert.match(
      await bed.operate('retry', nameOf(claim)),
      /it has no delayed job: StorageClass "absent" does not exist; user: name another class/,
    );
    await bed.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
  });

  it('says of a claim that is not pending how to see why', async () => {
    const text = await bed.operate('retry', 'default/none');
    assert.match(text, /^default\/none: not pending here.*\(sutler explain default\/none\)/);
  });

  it('asks what to retry, if nothing or too much is named', async () => {
    for (const args of [[], ['default/a', '--all']])
      assert.match(await bed.operate('retry', ...args), /name what to retry: NAMESPACE\/CLAIM/);
  });
});
