import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AzureFileSource, CsiSource, NewVolume, ObjectReference } from '#src/kube/objects.ts';
import { toInTreeVolume, translateHandle } from '#src/migration/plugins.ts';
import { aNewVolume, aStoredVolume, refusal } from './builders.ts';

const GROUP = 'kubernetes.io/azure-file-resource-group';

describe('an Azure file share for its driver', () => {
  const handleOf = (source: Partial<AzureFileSource>, claimRef: ObjectReference = {}) => {
    const secretName = 'azure-storage-account-acct-secret';
    const azureFile = { secretName, shareName: 'share', ...source };
    return translateHandle(aStoredVolume({ azureFile, claimRef }))?.handle;
  };

  for (const [secretName, account] of Object.entries({
    'azure-storage-account-a-secret': 'a',
    'my-azure-storage-account-a-secret-too': 'a',
    'azure-storage-account-a-secret-b-secret': 'a-secret-b',
    'azure-storage-account--secret': 'azure-storage-account--secret',
    own: 'own',
  }))
    it(`has account ${account} for secret ${secretName}, and no group without annotation`, () =>
      assert.equal(handleOf({ secretName, secretNamespace: 'ns' }), `#${account}#share#pv#ns`));

  // The API server sends null for an unset namespace.
  for (const source of [{}, { secretNamespace: null }])
    it(`has the claim’s namespace for ${JSON.stringify(source)}`, () =>
      assert.equal(handleOf(source, { namespace: 'claims' }), '#acct#share#pv#claims'));

  const text = 'could not find a secret namespace in PersistentVolumeSource or ClaimRef';
  it('is refused for an empty namespace, even if the claim has one', () =>
    assert.throws(() => handleOf({ secretNamespace: '' }, { namespace: 'claims' }), refusal(text)));
  it('is refused if neither source nor claim have a namespace', () =>
    assert.throws(() => handleOf({}, { name: 'claim' }), refusal(text)));
});

describe('a new volume of the Azure file driver', () => {
  const made = (csi: Partial<CsiSource>, metadata: Partial<NewVolume['metadata']> = {}) => {
    const source = { volumeHandle: 'group#acct#share', ...csi };
    return toInTreeVolume(aNewVolume('kubernetes.io/azure-file', source, { metadata }));
  };
  const source = (csi: Partial<CsiSource>) => made(csi).spec.azureFile;
  const volumeAttributes = { shareName: 'sh', SecretName: 'se', secretnamespace: 'ns' };
  const named = { shareName: 'sh', secretName: 'se', secretNamespace: 'ns' };

  const refs: readonly (readonly [string, object, secret: string, namespace: string])[] = [
    ['prefers the node’s secret', { name: 'node', namespace: 'nodes' }, 'node', 'nodes'],
    ['prefers it even without a namespace', { name: 'node' }, 'node', ''],
    ['ignores one with an empty name', { name: '', namespace: 'nodes' }, 'se', 'ns'],
    ['ignores one without a name', { namespace: 'nodes' }, 'se', 'ns'],
  ];
  for (const [title, nodeStageSecretRef, secretName, secretNamespace] of refs)
    it(title, () => {
      const found = source({ volumeAttributes, nodeStageSecretRef });
      assert.deepEqual(found, { shareName: 'sh', secretName, secretNamespace });
    });

  const ACCT = 'azure-storage-account-acct-secret';
  const fromHandle: readonly (readonly [string, Record<string, string>, string, string])[] = [
    ['the share', { secretname: 'se' }, 'share', 'se'],
    ['the secret', { sharename: 'sh' }, 'sh', ACCT],
    ['both', { sharename: '', secretname: '' }, 'share', ACCT],
  ];
  for (const [what, attributes, shareName, secretName] of fromHandle)
    it(`has ${what} and the resource group from the handle if need be`, () => {
      const volumeHandle = 'group#acct#share#pv#ns';
      const volume = made({ volumeHandle, volumeAttributes: attributes });
      assert.deepEqual(volume.spec.azureFile, {
        shareName,
        secretName,
        secretNamespace: 'default',
      });
      assert.deepEqual(volume.metadata.annotations, { [GROUP]: 'group' });
    });

  it('keeps other annotations and overwrites the group', () => {
    const annotations = { a: 'b', [GROUP]: 'old' };
    assert.deepEqual(made({}, { annotations }).metadata.annotations, { a: 'b', [GROUP]: 'group' });
  });

  it('has no group annotation for an empty group or a handle that was not needed', () => {
    assert.deepEqual(made({ volumeHandle: '#acct#share' }).metadata.annotations, {});
    assert.deepEqual(made({ volumeAttributes }).metadata.annotations, {});
  });

  for (const volumeHandle of ['', 'share', 'group#share'])
    it(`is refused for the handle "${volumeHandle}" only if it is needed`, () => {
      const text = `error parsing volume id: "${volumeHandle}", should at least contain two #`;
      assert.throws(() => made({ volumeHandle }), refusal(text));
      assert.deepEqual(source({ volumeHandle, volumeAttributes }), named);
    });
});
