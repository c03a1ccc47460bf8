import type { AwsElasticBlockStoreSource, Class, CsiSource } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';
import { zonesToTopologies } from './class-zones.ts';
import { byLowerCase, renameFsType } from './parameters.ts';
import { AWS } from './plugins.ts';
import { awsRegion } from './regions.ts';
import { toDriverTopology, toLabelTopology } from './topology.ts';
import { mountFields, readPartition, withSpec } from './volume-parts.ts';
import type { VolumeParts } from './volume-parts.ts';

/** AWS's class for its driver (spec 07 §3). */
export function awsClass(cls: Class): Class {
  const parameters = renameFsType(cls.parameters);
  // The plug-in raised an iops that is too low for the size; the driver does so only when told.
  const mayGrow = byLowerCase(parameters).has('iopspergb')
    ? { allowautoiopspergbincrease: 'true' }
    : {};
  return zonesToTopologies({ ...cls, parameters: { ...parameters, ...mayGrow } }, AWS.zoneKey);
}

/** AWS's volume for its driver (spec 07 §5).
 * @throws RefusedError for a volume ID that can't be read */
export function awsToCsi<V extends VolumeParts>(volume: V, source: AwsElasticBlockStoreSource): V {
  const csi: CsiSource = {
    driver: AWS.csiDriver,
    volumeHandle: handleOf(source.volumeID),
    ...mountFields(source),
    volumeAttributes: { partition: String(source.partition ?? 0) },
  };
  return toDriverTopology(withSpec(volume, { csi }), AWS.zoneKey);
}

/** The plug-in wrote IDs as `aws://<zone>/vol-1`, people also as `vol-1`. A scheme other than aws
 * can't come up: without `aws://` in front nothing is parsed. */
function handleOf(volumeId: string): string {
  if (!volumeId.startsWith('aws://')) return volumeId;
  const path = pathOf(volumeId);
  if (path === undefined)
    throw unreadable(`Invalid disk name (${volumeId}): it is no URL like aws://us-east-1a/vol-1`);
  const [id = '', ...others] = path.split('/').filter((part) => part !== '');
  if (!id.startsWith('vol-') || others.length > 0)
    throw unreadable(`Invalid format for AWS volume (${volumeId})`);
  return id;
}

/** Path of a URL as it is written, decoded: URL itself would resolve dots in it, and drop line
 * breaks. */
function pathOf(url: string): string | undefined {
  const path =
    URL.canParse(url) && !/\p{Cc}/u.test(url)
      ? /^aws:\/\/[^/?#]*([^?#]*)/.exec(url)?.[1]
      : undefined;
  try {
    return path === undefined ? undefined : decodeURIComponent(path);
  } catch {
    return undefined;
  }
}

function unreadable(why: string): RefusedError {
  return new RefusedError(`failed to translate Kubernetes ID to EBS Volume ID ${why}`);
}

/** A new volume of AWS's driver as the in-tree plug-in would have it (spec 07 §6).
 * @throws RefusedError for a partition that can't be read, or zones without a common region */
export function awsToInTree<V extends VolumeParts>(volume: V, csi: CsiSource): V {
  const text = csi.volumeAttributes?.['partition'];
  const partition = text === undefined ? {} : { partition: readPartition(text, 'failed') };
  const source: AwsElasticBlockStoreSource = {
    volumeID: csi.volumeHandle,
    ...mountFields(csi),
    ...partition,
  };
  return toLabelTopology(
    withSpec(volume, { awsElasticBlockStore: source }),
    AWS.zoneKey,
    awsRegion,
  );
}
