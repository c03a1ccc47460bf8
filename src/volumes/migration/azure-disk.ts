import type { AzureDiskSource, Class, CsiSource } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { mapExpressions, zonesToTopologies } from './class-zones.ts';
import { byLowerCase } from './parameters.ts';
import { AZURE_DISK } from './plugins.ts';
import { mountFields, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

const MANAGED = 'Managed';

/** Where a URI has the disk's name: behind the last mark that comes after all of `before`, each
 * after the one before it. Looked for without a regular expression, which a handle of 3 kB can keep
 * busy for half a minute. */
interface UriFormat {
  readonly before: readonly string[];
  readonly mark: string;
  /** As the refusal shows it. */
  readonly words: string;
}

const MANAGED_URI: UriFormat = {
  before: ['/subscriptions/', '/resourceGroups/'],
  mark: '/providers/Microsoft.Compute/disks/',
  words: '.*/subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/disks/(.+)',
};
const BLOB_URI: UriFormat = {
  before: ['http', '://'],
  mark: '/vhds/',
  words: 'http(?:.*)://(?:.*)/vhds/(.+)',
};

/** Azure Disk's class for its driver (spec 07 §3). `fstype` stays: this driver reads it itself. */
export function azureDiskClass(cls: Class): Class {
  const zoned = zonesToTopologies(cls, AZURE_DISK.zoneKey);
  // In regions without zones the plug-in wrote the number of the fault domain, which the driver
  // knows as no zone.
  return mapExpressions(zoned, (expression) =>
    expression.key === AZURE_DISK.zoneKey
      ? {
          ...expression,
          values: expression.values.map((zone) => (/^[0-9]+$/.test(zone) ? '' : zone)),
        }
      : expression,
  );
}

/** Azure Disk's volume for its driver (spec 07 §5).
 * @throws RefusedError for a disk that isn't managed */
export function azureDiskToCsi<V extends VolumeParts>(volume: V, source: AzureDiskSource): V {
  const { cachingMode, fsType, kind } = source;
  if (kind !== undefined && kind.toLowerCase() !== MANAGED.toLowerCase()) {
    throw new RefusedError(`kind(${kind}) is not supported in csi migration`);
  }
  const volumeAttributes = {
    kind: MANAGED,
    ...(cachingMode === undefined ? {} : { cachingmode: cachingMode }),
    ...(fsType === undefined ? {} : { fstype: fsType }),
  };
  return withSpec(volume, {
    csi: {
      driver: AZURE_DISK.csiDriver,
      volumeHandle: source.diskURI,
      ...mountFields(source),
      volumeAttributes,
    },
  });
}

/** A new volume of Azure Disk's driver as the in-tree plug-in would have it (spec 07 §6).
 * @throws RefusedError for a handle that names no disk */
export function azureDiskToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  const attributes = byLowerCase(csi.volumeAttributes);
  const cachingMode = attributes.get('cachingmode') ?? '';
  const fsType = attributes.get('fstype') ?? '';
  const azureDisk: AzureDiskSource = {
    diskName: diskNameOf(csi.volumeHandle),
    diskURI: csi.volumeHandle,
    kind: MANAGED,
    // Both are always said, even when empty: the API server would fill in its own defaults.
    fsType: fsType === '' ? (csi.fsType ?? '') : fsType,
    readOnly: csi.readOnly ?? false,
    ...(cachingMode === '' ? {} : { cachingMode }),
  };
  return withSpec(volume, { azureDisk });
}

function diskNameOf(uri: string): string {
  const isBlob = uri.length > 4 && uri.slice(0, 4).toLowerCase() === 'http';
  const { before, mark, words } = isBlob ? BLOB_URI : MANAGED_URI;
  const start = before.reduce((from, part) => {
    const at = uri.indexOf(part, from);
    return at === -1 ? Infinity : at + part.length;
  }, 0);
  // At least one character has to follow.
  const at = uri.lastIndexOf(mark, uri.length - mark.length - 1);
  if (at < start)
    throw new RefusedError(`could not get disk name from ${uri}, correct format: ${words}`);
  return uri.slice(at + mark.length);
}
