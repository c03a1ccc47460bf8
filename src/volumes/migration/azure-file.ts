import { AZURE_FILE_RESOURCE_GROUP } from '../../kube/keys.ts';
import type { AzureFileSource, CsiSource } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { byLowerCase } from './parameters.ts';
import { AZURE_FILE } from './plugins.ts';
import { mountFields, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

/** Azure File's volume for its driver (spec 07 §5).
 * @throws RefusedError where neither source nor claim tell the secret's namespace */
export function azureFileToCsi<V extends VolumeParts>(volume: V, source: AzureFileSource): V {
  const { secretName, shareName } = source;
  // An empty namespace counts as said: then the claim's is not taken.
  const namespace = source.secretNamespace ?? volume.spec.claimRef?.namespace ?? '';
  if (namespace === '')
    throw new RefusedError(
      'could not find a secret namespace in PersistentVolumeSource or ClaimRef',
    );
  const resourceGroup = volume.metadata.annotations?.[AZURE_FILE_RESOURCE_GROUP] ?? '';
  const account = /azure-storage-account-(.+)-secret/.exec(secretName)?.[1] ?? secretName;
  const csi: CsiSource = {
    driver: AZURE_FILE.csiDriver,
    volumeHandle: [resourceGroup, account, shareName, volume.metadata.name, namespace].join('#'),
    ...mountFields({ readOnly: source.readOnly }),
    volumeAttributes: { sharename: shareName },
    nodeStageSecretRef: { name: secretName, namespace },
  };
  return withSpec(volume, { csi });
}

/** A new volume of Azure File's driver as the in-tree plug-in would have it (spec 07 §6). The
 * handle tells what of share and secret nobody names.
 * @throws RefusedError for a handle that can't be read, where it is needed */
export function azureFileToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  const attributes = byLowerCase(csi.volumeAttributes);
  const shareName = attributes.get('sharename') ?? '';
  const secret = secretOf(csi, attributes);
  const handle = shareName === '' || secret.name === '' ? readHandle(csi.volumeHandle) : UNREAD;
  const azureFile: AzureFileSource = {
    ...mountFields({ readOnly: csi.readOnly }),
    shareName: shareName === '' ? handle.shareName : shareName,
    secretName: secret.name === '' ? handle.secretName : secret.name,
    secretNamespace: secret.namespace ?? 'default',
  };
  const group =
    handle.resourceGroup === '' ? {} : { [AZURE_FILE_RESOURCE_GROUP]: handle.resourceGroup };
  return {
    ...withSpec(volume, { azureFile }),
    metadata: { ...volume.metadata, annotations: { ...volume.metadata.annotations, ...group } },
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

interface HandleParts {
  readonly resourceGroup: string;
  readonly shareName: string;
  readonly secretName: string;
}

/** Of a handle that nothing is wanted of. */
const UNREAD: HandleParts = { resourceGroup: '', shareName: '', secretName: '' };

function readHandle(handle: string): HandleParts {
  const [resourceGroup, account, shareName] = handle.split('#');
  if (resourceGroup === undefined || shareName === undefined)
    throw new RefusedError(`error parsing volume id: "${handle}", should at least contain two #`);
  return { resourceGroup, shareName, secretName: `azure-storage-account-${account}-secret` };
}
