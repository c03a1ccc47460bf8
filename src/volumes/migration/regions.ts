/** The region that zones share, or why there is none. */
export type FoundRegion = { readonly region: string } | { readonly problem: string };

/** Region of GCE zones: `us-east1-b` is in us-east1. Upstream: csi-translation-lib
 * plugins/gce_pd.go gceGetRegionFromZones. */
export function gceRegion(zones: readonly string[]): FoundRegion {
  const malformed = zones.find((zone) => zone.split('-').length !== 3);
  if (malformed !== undefined)
    return {
      problem: `zone in unexpected format, expected: {locale}-{region}-{zone}, got: ${malformed}`,
    };
  return toSingleRegion(zones.map((zone) => zone.split('-').slice(0, 2).join('-')));
}

/** Region of AWS zones: `us-west-2a` and the local zone `us-west-2-lax-1a` are in us-west-2.
 * Upstream: csi-translation-lib plugins/aws_ebs.go getAwsRegionFromZones. */
export function awsRegion(zones: readonly string[]): FoundRegion {
  const regions: string[] = [];
  for (const zone of zones) {
    const region = parseAwsZone(zone);
    if (region === undefined)
      return { problem: `Unexpected zone format: ${zone} is not a valid AWS zone` };
    regions.push(region);
  }
  return toSingleRegion(regions);
}

function parseAwsZone(zone: string): string | undefined {
  const parts = zone.split('-');
  const isPlain = parts.length === 3 || parts.length === 4;
  if (isPlain && parts.at(-1)?.length === 2) return zone.slice(0, -1);
  // Five parts are a local zone, seven a wavelength zone.
  return parts.length === 5 || parts.length === 7 ? parts.slice(0, 3).join('-') : undefined;
}

function toSingleRegion(regions: readonly string[]): FoundRegion {
  const [region, ...others] = [...new Set(regions)].sort();
  if (region === undefined) return { problem: 'no zones specified' };
  if (others.length === 0) return { region };
  const all = [region, ...others].join(', ');
  return { problem: `multiple or no regions gotten from zones, got: ${all}` };
}
