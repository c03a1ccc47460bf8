import { RefusedError } from '../rules/rule.ts';
import { awsRegion, toLabelTopology, translateZones } from './topology.ts';
import {
  indexByLowerCase,
  type InTreePlugin,
  mountFields,
  parsePartition,
  renameFsType,
} from './in-tree-plugin.ts';

const ZONE_KEY = 'topology.ebs.csi.aws.com/zone';

/** AWS Elastic Block Store. Upstream: csi-translation-lib plugins/aws_ebs.go. */
export const AWS: InTreePlugin<'awsElasticBlockStore'> = {
  inTreeName: 'kubernetes.io/aws-ebs',
  csiDriver: 'ebs.csi.aws.com',
  source: 'awsElasticBlockStore',

  translateClass(cls) {
    const translated = translateZones(renameFsType(cls), ZONE_KEY);
    const { parameters } = translated;
    if (!indexByLowerCase(parameters).has('iopspergb')) return translated;
    // The in-tree plug-in raised an iops that was too low for the size; the driver does so only
    // with this parameter.
    return { ...translated, parameters: { ...parameters, allowautoiopspergbincrease: 'true' } };
  },

  // "aws://zone/vol-1" and "vol-1" are one volume.
  identify: ({ volumeID }) => volumeID.replace(/^aws:.*\//, ''),

  toHandle: ({ volumeID }) => parseVolumeId(volumeID),

  toInTreeSource(csi) {
    const partition = csi.volumeAttributes?.['partition'];
    return {
      volumeID: csi.volumeHandle,
      ...mountFields(csi),
      ...(partition === undefined ? {} : { partition: parsePartition(partition, 'failed') }),
    };
  },

  finishInTree: (volume) => toLabelTopology(volume, ZONE_KEY, awsRegion),
};

/** The handle of a volumeID, which the in-tree plug-in wrote as `aws://<zone>/vol-1` and users also
 * write as `vol-1`. Upstream: KubernetesVolumeIDToEBSVolumeID.
 * @throws RefusedError for a URL that names no volume */
function parseVolumeId(volumeId: string): string {
  if (!volumeId.startsWith('aws://')) return volumeId;
  const path = urlPathOf(volumeId);
  if (path === undefined)
    throw refuseVolumeId(
      `Invalid disk name (${volumeId}): it is no URL like aws://us-east-1a/vol-1`,
    );
  const [id = '', ...others] = path.split('/').filter((part) => part !== '');
  if (!id.startsWith('vol-') || others.length > 0)
    throw refuseVolumeId(`Invalid format for AWS volume (${volumeId})`);
  return id;
}

/** The decoded path of a URL as written: the class URL would resolve dots and drop line breaks. */
function urlPathOf(url: string): string | undefined {
  if (!URL.canParse(url) || /\p{Cc}/u.test(url)) return undefined;
  try {
    return decodeURIComponent(url.replaceAll(/^aws:\/\/[^/?#]*|[?#].*$/gs, ''));
  } catch {
    return undefined;
  }
}

function refuseVolumeId(why: string): RefusedError {
  return new RefusedError(`failed to translate Kubernetes ID to EBS Volume ID ${why}`);
}
