import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Claim } from '#src/kube/objects.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { useRig, type Rig, WITH_SECRET } from './rig.ts';

/** Not UTF-8: begins with a byte that no character has, and ends within a character. */
const BYTES = Buffer.from([0xff, 0x6b, 0x65, 0x79, 0xc3]);
const TEXT = Buffer.from('pässwörd\u{fffd} \u{1f511}\n');
const notTextMessage = (name: string, keys: string): string =>
  `secret default/${name} can't be sent to the driver: ` +
  `the value of ${keys} is not UTF-8 text, and CSI carries nothing else; ` +
  "store it as text in the way that the driver's manual says, " +
  "for example in base64 on top of Kubernetes' own";

describe('a secret', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const claimWith = async (values: Readonly<Record<string, Uint8Array>>): Promise<Claim> => {
    const claim = await rig.claim({ parameters: WITH_SECRET });
    await rig.secret(claim.metadata.name, values);
    return claim;
  };
  /** Two runs of a claim whose call can't have its secret: nothing is sent or begun.
   * @returns the one reason and event, and the changes that it waits for */
  const refused = async (claim: Claim, change: Partial<Dependencies> = {}) => {
    const outcomes = [await rig.provision(claim, change), await rig.provision(claim, change)];
    const [first, second] = outcomes;
    assert.deepEqual(second, first);
    assert.ok(first?.kind === 'retry', JSON.stringify(first));
    const [event = '', ...others] = rig.messages();
    assert.deepEqual(others, []);
    assert.deepEqual(rig.callsOf('CreateVolume'), []);
    assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
    return { reason: first.reason, event, until: first.until };
  };

  it('arrives unchanged if its values are text in any language, or empty', async () => {
    const claim = await claimWith({ text: TEXT, none: Buffer.alloc(0) });
    assert.equal((await rig.provision(claim)).kind, 'done');
    assert.deepEqual(
      rig.callsOf('CreateVolume').map(({ request }) => (request as CreateVolumeRequest).secrets),
      [{ text: TEXT.toString('utf8'), none: '' }],
    );
  });

  it('that is missing delays the claim until it is there (B-20)', async () => {
    const claim = await rig.claim({ parameters: WITH_SECRET });
    const { name } = claim.metadata;
    const { event, until } = await refused(claim);
    const text = `error getting secret ${name} in namespace default: secrets "${name}" not found`;
    assert.equal(event, `Warning ProvisioningFailed ${text}`);
    assert.deepEqual(until, [{ resource: 'secrets', namespace: 'default', name, seen: '' }]);
  });

  it('that may not be read delays the claim; the event says who needs which right', async () => {
    const claim = await claimWith({ key: TEXT });
    const { name } = claim.metadata;
    // As kube-apiserver puts it.
    const serverMessage =
      `secrets "${name}" is forbidden: User "system:serviceaccount:sutler:sutler-jobs" ` +
      'cannot get resource "secrets" in API group "" in the namespace "default"';
    const hidden = rig.kubeWith({
      get: (resource, ref) =>
        resource.plural === 'secrets'
          ? Promise.reject(new KubeError({ code: 403, reason: 'Forbidden', serverMessage }))
          : rig.kube.get(resource, ref),
    });
    const { reason, event } = await refused(claim, hidden);
    assert.ok(reason.includes(serverMessage), reason);
    assert.ok(event.includes(`secret ${name} in namespace default: ${serverMessage}; `), event);
    assert.match(
      event,
      /bind that account to a Role .* may get the secret \(k8s\/secrets-by-name\)$/,
    );
  });

  it('with a value that is not text delays the claim; the event names keys, and no value', async () => {
    const claim = await claimWith({ user: TEXT, keytab: BYTES, token: BYTES });
    const { reason, event, until } = await refused(claim);
    assert.equal(reason, notTextMessage(claim.metadata.name, 'keytab, token'));
    assert.equal(event, `Warning ProvisioningFailed ${reason}`);
    const { metadata } = await rig.secret(claim.metadata.name, {});
    const { namespace, name, resourceVersion: seen } = metadata;
    assert.deepEqual(until, [{ resource: 'secrets', namespace, name, seen }]);
    const reported = JSON.stringify([reason, rig.events]);
    for (const form of ['base64', 'utf8', 'latin1'] as const)
      assert.ok(!reported.includes(JSON.stringify(BYTES.toString(form)).slice(1, -1)));
  });

  it('with a value that is not text prevents DeleteVolume and parks the volume on it', async () => {
    const name = 'of-a-volume';
    await rig.secret(name, { keytab: TEXT });
    const volume = await rig.createReleasedVolume({ name, parameters: WITH_SECRET });
    const { metadata } = await rig.secret(name, { keytab: BYTES });
    const outcome = await rig.remove(volume);
    assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
    const { namespace, resourceVersion: seen } = metadata;
    assert.deepEqual(outcome.until, [{ resource: 'secrets', namespace, name, seen }]);
    assert.equal(rig.countDeletions(), 0);
    assert.deepEqual(rig.warnings(), [`VolumeFailedDelete ${notTextMessage(name, 'keytab')}`]);
    await rig.secret(name, { keytab: TEXT });
    assert.equal((await rig.remove(volume)).kind, 'done');
    assert.deepEqual(rig.lastDeletion().secrets, { keytab: TEXT.toString('utf8') });
  });
});
