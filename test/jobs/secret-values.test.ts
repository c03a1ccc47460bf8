import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim, Secret } from '#src/kube/objects.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { secrets } from '#src/kube/resources.ts';
import { callsOf, messagesOf } from './claim-cases.ts';
import { kubeWith } from './parts.ts';
import { openRig, type Rig } from './rig.ts';
import {
  countDeletions,
  createReleasedVolume,
  isDeletedByUs,
  lastDeletion,
  listWarnings,
  readAgain,
} from './stored-volume.ts';

const parameters = {
  'csi.storage.k8s.io/provisioner-secret-name': '${pvc.name}',
  'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
};
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
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  let names = 0;
  const uniqueName = (): string => `with-values-${(names += 1)}`;
  async function writeSecret(
    name: string,
    values: Readonly<Record<string, Uint8Array>>,
  ): Promise<Secret> {
    const data = Object.fromEntries(
      Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
    );
    const ref = { namespace: 'default', name };
    if ((await rig.kube.get(secrets, ref)) !== undefined)
      return rig.kube.patch<Secret>(secrets, ref, { type: 'merge', body: { data } });
    return rig.kube.create<Secret>(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: ref,
      data,
    });
  }
  async function claimWith(values: Readonly<Record<string, Uint8Array>>): Promise<Claim> {
    const name = uniqueName();
    await writeSecret(name, values);
    return rig.claim({ name, parameters });
  }
  const sentSecrets = (): unknown[] =>
    callsOf(rig, 'CreateVolume').map(({ request }) => (request as CreateVolumeRequest).secrets);

  it('arrives unchanged if its values are text in any language, or empty', async () => {
    assert.equal(
      (await rig.provision(await claimWith({ text: TEXT, none: Buffer.alloc(0) }))).kind,
      'done',
    );
    assert.deepEqual(sentSecrets(), [{ text: TEXT.toString('utf8'), none: '' }]);
  });

  it('that may not be read delays the claim; one event says who needs which right', async () => {
    const claim = await claimWith({ key: TEXT });
    const { name } = claim.metadata;
    // As kube-apiserver puts it.
    const serverMessage =
      `secrets "${name}" is forbidden: User "system:serviceaccount:sutler:sutler-jobs" ` +
      'cannot get resource "secrets" in API group "" in the namespace "default"';
    const refused = kubeWith(rig, {
      get: (resource, ref) =>
        resource.plural === 'secrets'
          ? Promise.reject(new KubeError({ code: 403, reason: 'Forbidden', serverMessage }))
          : rig.kube.get(resource, ref),
    });
    const outcomes = [await rig.provision(claim, refused), await rig.provision(claim, refused)];
    for (const outcome of outcomes)
      assert.ok(
        // A retry waits, up to --retry-interval-max; the log shows its reason.
        outcome.kind === 'retry' && outcome.reason.includes(serverMessage),
        JSON.stringify(outcome),
      );
    const [event, ...others] = messagesOf(rig);
    assert.ok(event?.includes(`secret ${name} in namespace default: ${serverMessage}; `), event);
    assert.match(
      event ?? '',
      /bind that account to a Role .* may get it \(k8s\/secrets-by-name\)$/,
    );
    assert.deepEqual(others, []);
    assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
    assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
    assert.equal((await rig.provision(claim)).kind, 'done');
  });

  describe('with a value that is not text', () => {
    it('prevents CreateVolume; one event names secret and keys, and no value', async () => {
      const claim = await claimWith({ user: TEXT, keytab: BYTES, token: BYTES });
      const { name } = claim.metadata;
      const outcomes = [await rig.provision(claim), await rig.provision(claim)];
      const reason = notTextMessage(name, 'keytab, token');
      for (const outcome of outcomes)
        assert.ok(outcome.kind === 'retry' && outcome.reason === reason, JSON.stringify(outcome));
      assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${reason}`]);
      assert.deepEqual(callsOf(rig, 'CreateVolume'), []);
      assert.equal(await rig.doubtMs(claim), undefined, 'nothing is begun');
      const reported = JSON.stringify([outcomes, rig.events]);
      for (const form of ['base64', 'utf8', 'latin1'] as const)
        assert.ok(!reported.includes(JSON.stringify(BYTES.toString(form)).slice(1, -1)));
    });

    it('has the claim tried again when the secret changes', async () => {
      const claim = await claimWith({ keytab: BYTES });
      const outcome = await rig.provision(claim);
      assert.ok(outcome.kind === 'retry', JSON.stringify(outcome));
      const { metadata } = await writeSecret(claim.metadata.name, {});
      assert.deepEqual(outcome.until, [
        {
          resource: 'secrets',
          namespace: 'default',
          name: metadata.name,
          seen: metadata.resourceVersion,
        },
      ]);
    });

    it('prevents DeleteVolume and parks the volume on the secret', async () => {
      const name = uniqueName();
      await writeSecret(name, { keytab: TEXT });
      const volume = await createReleasedVolume(rig, { name, parameters });
      const { metadata } = await writeSecret(name, { keytab: BYTES });
      for (const _ of [1, 2]) {
        const outcome = await rig.remove(volume);
        assert.ok(outcome.kind === 'parked', JSON.stringify(outcome));
        assert.deepEqual(outcome.until, [
          { resource: 'secrets', namespace: 'default', name, seen: metadata.resourceVersion },
        ]);
      }
      assert.equal(countDeletions(rig), 0);
      assert.deepEqual(listWarnings(rig), [`VolumeFailedDelete ${notTextMessage(name, 'keytab')}`]);
      assert.equal(await rig.doubtMs(volume), undefined, 'nothing is begun');
      await writeSecret(name, { keytab: TEXT });
      assert.equal((await rig.remove(volume)).kind, 'done');
      assert.deepEqual(lastDeletion(rig).secrets, { keytab: TEXT.toString('utf8') });
      assert.ok(isDeletedByUs(await readAgain(rig, volume)));
    });
  });
});
