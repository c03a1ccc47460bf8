import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AzureFileSource, CsiSource, NewVolume, ObjectReference } from '#src/kube/objects.ts';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { aNewVolume, aStoredVolume, refusal } from './builders.ts';

const GROUP = 'kubernetes.io/azure-file-resource-group';

describe('an Azure file share for its driver', () => {
  const csi = (
    source: Partial<AzureFileSource>,
    {
      claimRef,
      annotations = {},
    }: { claimRef?: ObjectReference; annotations?: Record<string, string> } = {},
  ) => {
    const azureFile = {
      secretName: 'azure-storage-account-acct-secret',
      shareName: 'share',
      ...source,
    };
    return toCsiVolume(
      aStoredVolume({ azureFile, ...(claimRef ? { claimRef } : {}) }, { annotations }),
    ).spec.csi;
  };

  it('has a handle of all its parts, and the secret for the node', () => {
    assert.deepEqual(
      csi({ secretNamespace: 'ns', readOnly: true }, { annotations: { [GROUP]: 'group' } }),
      {
        driver: 'file.csi.azure.com',
        volumeHandle: 'group#acct#share#pv#ns',
        readOnly: true,
        volumeAttributes: { sharename: 'share' },
        nodeStageSecretRef: { name: 'azure-storage-account-acct-secret', namespace: 'ns' },
      },
    );
  });

  it('has no resource group if no annotation names one', () => {
    assert.equal(csi({ secretNamespace: 'ns' })?.volumeHandle, '#acct#share#pv#ns');
  });

  for (const [secretName, account] of Object.entries({
    'azure-storage-account-a-secret': 'a',
    'my-azure-storage-account-a-secret-too': 'a',
    'azure-storage-account-a-secret-b-secret': 'a-secret-b',
    'azure-storage-account--secret': 'azure-storage-account--secret',
    own: 'own',
  })) {
    it(`has account ${account} for secret ${secretName}`, () => {
      assert.equal(
        csi({ secretName, secretNamespace: 'ns' })?.volumeHandle,
        `#${account}#share#pv#ns`,
      );
    });
  }

  // The API server sends null for an unset namespace.
  for (const source of [{}, { secretNamespace: null }]) {
    it(`has the claim’s namespace for ${JSON.stringify(source)}`, () => {
      const found = csi(source, { claimRef: { namespace: 'claims' } });
      assert.equal(found?.volumeHandle, '#acct#share#pv#claims');
      assert.equal(found?.nodeStageSecretRef?.namespace, 'claims');
    });
  }

  const text = 'could not find a secret namespace in PersistentVolumeSource or ClaimRef';
  it('is refused for an empty namespace, even if the claim has one', () => {
    assert.throws(
      () => csi({ secretNamespace: '' }, { claimRef: { namespace: 'claims' } }),
      refusal(text),
    );
  });
  it('is refused if neither source nor claim have a namespace', () => {
    assert.throws(() => csi({}), refusal(text));
    assert.throws(() => csi({}, { claimRef: { name: 'claim' } }), refusal(text));
  });
});

describe('a new volume of the Azure file driver', () => {
  const made = (csi: Partial<CsiSource>, metadata: Partial<NewVolume['metadata']> = {}) =>
    toInTreeVolume(
      aNewVolume(
        'kubernetes.io/azure-file',
        { volumeHandle: 'group#acct#share', ...csi },
        { metadata },
      ),
    );
  const source = (csi: Partial<CsiSource>) => made(csi).spec.azureFile;

  it('has share and secret from the attributes, in any case', () => {
    const volumeAttributes = { shareName: 'sh', SecretName: 'se', secretnamespace: 'ns' };
    assert.deepEqual(source({ readOnly: true, volumeAttributes }), {
      shareName: 'sh',
      secretName: 'se',
      secretNamespace: 'ns',
      readOnly: true,
    });
  });

  it('prefers the node’s secret', () => {
    const volumeAttributes = { sharename: 'sh', secretname: 'se', secretnamespace: 'ns' };
    assert.deepEqual(
      source({ volumeAttributes, nodeStageSecretRef: { name: 'node', namespace: 'nodes' } }),
      {
        shareName: 'sh',
        secretName: 'node',
        secretNamespace: 'nodes',
      },
    );
    assert.equal(
      source({ volumeAttributes, nodeStageSecretRef: { name: 'node' } })?.secretNamespace,
      '',
    );
  });

  for (const nodeStageSecretRef of [{ name: '', namespace: 'nodes' }, { namespace: 'nodes' }]) {
    it(`ignores the secret reference ${JSON.stringify(nodeStageSecretRef)}`, () => {
      const volumeAttributes = { sharename: 'sh', secretname: 'se', secretnamespace: 'ns' };
      const expected = { shareName: 'sh', secretName: 'se', secretNamespace: 'ns' };
      assert.deepEqual(source({ volumeAttributes, nodeStageSecretRef }), expected);
    });
  }

  it('has the secret in namespace default if no namespace is given', () => {
    assert.equal(
      source({ volumeAttributes: { sharename: 'sh', secretname: 'se' } })?.secretNamespace,
      'default',
    );
  });

  const fromHandle: readonly (readonly [
    string,
    Record<string, string>,
    Pick<AzureFileSource, 'shareName' | 'secretName'>,
  ])[] = [
    ['the share', { secretname: 'se' }, { shareName: 'share', secretName: 'se' }],
    [
      'the secret',
      { sharename: 'sh' },
      { shareName: 'sh', secretName: 'azure-storage-account-acct-secret' },
    ],
    [
      'both',
      { sharename: '', secretname: '' },
      { shareName: 'share', secretName: 'azure-storage-account-acct-secret' },
    ],
  ];
  for (const [what, volumeAttributes, expected] of fromHandle) {
    it(`has ${what} and the resource group from the handle if need be`, () => {
      const volume = made({ volumeHandle: 'group#acct#share#pv#ns', volumeAttributes });
      assert.deepEqual(volume.spec.azureFile, { ...expected, secretNamespace: 'default' });
      assert.deepEqual(volume.metadata.annotations, { [GROUP]: 'group' });
    });
  }

  it('keeps other annotations and overwrites the group', () => {
    assert.deepEqual(made({}, { annotations: { a: 'b', [GROUP]: 'old' } }).metadata.annotations, {
      a: 'b',
      [GROUP]: 'group',
    });
  });

  it('has no group annotation for an empty group or a handle that was not needed', () => {
    assert.deepEqual(made({ volumeHandle: '#acct#share' }).metadata.annotations, {});
    assert.deepEqual(
      made({ volumeAttributes: { sharename: 'sh', secretname: 'se' } }).metadata.annotations,
      {},
    );
  });

  for (const volumeHandle of ['', 'share', 'group#share']) {
    it(`is refused for the handle "${volumeHandle}" if it is needed`, () => {
      assert.throws(
        () => made({ volumeHandle }),
        refusal(`error parsing volume id: "${volumeHandle}", should at least contain two #`),
      );
      assert.equal(
        source({ volumeHandle, volumeAttributes: { sharename: 'sh', secretname: 'se' } })
          ?.shareName,
        'sh',
      );
    });
  }
});
