import { RefusedError } from '../rules/refused-error.ts';

/** The region that GCE zones share: `us-east1-b` is in us-east1. Upstream: csi-translation-lib
 * plugins/gce_pd.go gceGetRegionFromZones.
 * @throws RefusedError for an unreadable zone, no zone, and several regions */
export function gceRegion(zones: readonly string[]): string {
  return toSingleRegion(zones.map(parseGceZone));
}

function parseGceZone(zone: string): string {
  const parts = zone.split('-');
  if (parts.length === 3) return parts.slice(0, 2).join('-');
  const format = '{locale}-{region}-{zone}';
  throw new RefusedError(`zone in unexpected format, expected: ${format}, got: ${zone}`);
}

/** The region that AWS zones share: `us-west-2a` and the local zone `us-west-2-lax-1a` are in
 * us-west-2. Upstream: csi-translation-lib plugins/aws_ebs.go getAwsRegionFromZones.
 * @throws RefusedError for an unreadable zone, no zone, and several regions */
export function awsRegion(zones: readonly string[]): string {
  return toSingleRegion(zones.map(parseAwsZone));
}

function parseAwsZone(zone: string): string {
  const parts = zone.split('-');
  const isPlain = parts.length === 3 || parts.length === 4;
  if (isPlain && parts.at(-1)?.length === 2) return zone.slice(0, -1);
  // Five parts are a local zone, seven a wavelength zone.
  if (parts.length === 5 || parts.length === 7) return parts.slice(0, 3).join('-');
  throw new RefusedError(`Unexpected zone format: ${zone} is not a valid AWS zone`);
}

function toSingleRegion(regions: readonly string[]): string {
  const [region, ...others] = [...new Set(regions)].sort();
  if (region === undefined) throw new RefusedError('no zones specified');
  if (others.length === 0) return region;
  const all = [region, ...others].join(', ');
  throw new RefusedError(`multiple or no regions gotten from zones, got: ${all}`);
}
