import { AZURE_FILE_RESOURCE_GROUP } from '../kube/keys.ts';
import type { AzureFileSource, CsiSource } from '../kube/objects.ts';
import { omitUnset } from '../runtime/json.ts';
import { RefusedError } from '../rules/rule.ts';
import { indexByLowerCase, type InTreePlugin } from './in-tree-plugin.ts';

/** Azure file shares. Upstream: csi-translation-lib plugins/azure_file.go. */
export const AZURE_FILE: InTreePlugin<'azureFile'> = {
  inTreeName: 'kubernetes.io/azure-file',
  csiDriver: 'file.csi.azure.com',
  source: 'azureFile',

  translateClass: (cls) => cls,

  // Neither Kubernetes nor Azure allows a # in these names. As in handles, the share is third.
  identify: ({ secretNamespace, secretName, shareName }, claimNamespace) =>
    [secretNamespace ?? claimNamespace, secretName, shareName].join('#'),

  toHandle(source, { metadata, spec }) {
    const { secretName, shareName } = source;
    // An empty secretNamespace counts as set: then the claim's is not used.
    const namespace = source.secretNamespace ?? spec.claimRef?.namespace ?? '';
    if (namespace === '')
      throw new RefusedError(
        'could not find a secret namespace in PersistentVolumeSource or ClaimRef',
      );
    const resourceGroup = metadata.annotations?.[AZURE_FILE_RESOURCE_GROUP] ?? '';
    const account = accountIn(secretName) ?? secretName;
    return [resourceGroup, account, shareName, metadata.name, namespace].join('#');
  },

  toInTreeSource: (csi) => readCsiSource(csi).source,

  finishInTree(volume, csi) {
    const { resourceGroup } = readCsiSource(csi);
    const group = resourceGroup === '' ? {} : { [AZURE_FILE_RESOURCE_GROUP]: resourceGroup };
    const annotations = { ...volume.metadata.annotations, ...group };
    return { ...volume, metadata: { ...volume.metadata, annotations } };
  },
};

/** The text between `azure-storage-account-` and the last `-secret`; a RegExp would search a long
 * name in quadratic time. */
function accountIn(secretName: string): string | undefined {
  const found = secretName.indexOf(ACCOUNT_PREFIX);
  const start = found + ACCOUNT_PREFIX.length;
  const end = secretName.lastIndexOf('-secret');
  return found === -1 || end <= start ? undefined : secretName.slice(start, end);
}

const ACCOUNT_PREFIX = 'azure-storage-account-';

/** The in-tree source. Reads the handle only if attributes and secret reference lack the share or
 * the secret; as in upstream, the resource group is known only then.
 * @throws RefusedError for a handle that is needed and can't be read */
function readCsiSource(csi: CsiSource): { source: AzureFileSource; resourceGroup: string } {
  const attributes = indexByLowerCase(csi.volumeAttributes);
  const shareName = attributes.get('sharename') ?? '';
  const secret = secretOf(csi, attributes);
  const handle = shareName === '' || secret.name === '' ? parseHandle(csi.volumeHandle) : UNREAD;
  return {
    source: {
      ...omitUnset({ readOnly: csi.readOnly }),
      shareName: shareName === '' ? handle.shareName : shareName,
      secretName: secret.name === '' ? handle.secretName : secret.name,
      secretNamespace: secret.namespace ?? 'default',
    },
    resourceGroup: handle.resourceGroup,
  };
}

function secretOf(
  csi: CsiSource,
  attributes: ReadonlyMap<string, string>,
): { name: string; namespace: string | undefined } {
  const { name = '', namespace = '' } = csi.nodeStageSecretRef ?? {};
  if (name !== '') return { name, namespace };
  return { name: attributes.get('secretname') ?? '', namespace: attributes.get('secretnamespace') };
}

/** The parts of a handle that is not needed. */
const UNREAD = { resourceGroup: '', shareName: '', secretName: '' };

/** Upstream: getFileShareInfo. */
function parseHandle(handle: string): typeof UNREAD {
  const [resourceGroup, account, shareName] = handle.split('#');
  if (resourceGroup === undefined || shareName === undefined)
    throw new RefusedError(`error parsing volume id: "${handle}", should at least contain two #`);
  return { resourceGroup, shareName, secretName: `azure-storage-account-${account}-secret` };
}
