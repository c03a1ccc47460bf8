import { RefusedError } from '../rules/rule.ts';
import { mapExpressions, translateZones } from './topology.ts';
import { indexByLowerCase, type InTreePlugin } from './in-tree-plugin.ts';

const ZONE_KEY = 'topology.disk.csi.azure.com/zone';
const MANAGED = 'Managed';

/** Azure managed disks. Upstream: csi-translation-lib plugins/azure_disk.go. */
export const AZURE_DISK: InTreePlugin<'azureDisk'> = {
  inTreeName: 'kubernetes.io/azure-disk',
  csiDriver: 'disk.csi.azure.com',
  source: 'azureDisk',

  // `fstype` keeps its name: this driver reads it itself.
  translateClass: (cls) =>
    mapExpressions(translateZones(cls, ZONE_KEY), (expression) =>
      expression.key === ZONE_KEY
        ? { ...expression, values: expression.values.map(clearFaultDomain) }
        : expression,
    ),

  identify: ({ diskURI }) => diskURI,

  toHandle({ diskURI, kind }) {
    if (kind !== undefined && kind.toLowerCase() !== MANAGED.toLowerCase())
      throw new RefusedError(`kind(${kind}) is not supported in csi migration`);
    return diskURI;
  },

  toInTreeSource(csi) {
    const attributes = indexByLowerCase(csi.volumeAttributes);
    const cachingMode = attributes.get('cachingmode') ?? '';
    const fsType = attributes.get('fstype') ?? '';
    return {
      diskName: diskNameOf(csi.volumeHandle),
      diskURI: csi.volumeHandle,
      kind: MANAGED,
      // Written even if empty, since the API server would fill in its own defaults.
      fsType: fsType === '' ? (csi.fsType ?? '') : fsType,
      readOnly: csi.readOnly ?? false,
      ...(cachingMode === '' ? {} : { cachingMode }),
    };
  },
};

/** In regions without zones the in-tree plug-in wrote the number of the fault domain as the zone;
 * the driver expects an empty one. Upstream: replaceFailureDomainsToCSI. */
function clearFaultDomain(zone: string): string {
  return /^[0-9]+$/.test(zone) ? '' : zone;
}

/** The disk's name in a URI follows the last `mark` after all of `before`, in their order. We
 * search without a regular expression, which a handle of 3 kB could keep busy for half a minute. */
interface UriFormat {
  readonly before: readonly string[];
  readonly mark: string;
  /** Upstream's regular expression, shown in the refusal. */
  readonly regex: string;
}

const MANAGED_URI: UriFormat = {
  before: ['/subscriptions/', '/resourceGroups/'],
  mark: '/providers/Microsoft.Compute/disks/',
  regex: '.*/subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/disks/(.+)',
};
const BLOB_URI: UriFormat = {
  before: ['http', '://'],
  mark: '/vhds/',
  regex: 'http(?:.*)://(?:.*)/vhds/(.+)',
};

/** Upstream: getDiskName.
 * @throws RefusedError for a handle that names no disk */
function diskNameOf(uri: string): string {
  const isBlob = uri.length > 4 && uri.slice(0, 4).toLowerCase() === 'http';
  const { before, mark, regex } = isBlob ? BLOB_URI : MANAGED_URI;
  const start = before.reduce((from, part) => {
    const at = uri.indexOf(part, from);
    return at === -1 ? Infinity : at + part.length;
  }, 0);
  // At least one character has to follow the mark.
  const at = uri.lastIndexOf(mark, uri.length - mark.length - 1);
  if (at < start)
    throw new RefusedError(`could not get disk name from ${uri}, correct format: ${regex}`);
  return uri.slice(at + mark.length);
}
