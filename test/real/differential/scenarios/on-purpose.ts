import type { KnownDifference } from '../../../harness/differential/differences.ts';

/** Differences on purpose, whatever the flags. */
export const onPurpose: readonly KnownDifference[] = [
  {
    scenario: /^(?!slow-)/,
    where: /^events Normal Provisioning \S+ \S+: External provisioner is provisioning/,
    entry: '`Provisioning`',
  },
];

/** Differences on purpose for claims and for answers of the driver. */
export const ofClaims: readonly KnownDifference[] = [
  {
    scenario: 'given-no-id',
    where: /^events Warning ProvisioningFailed .* with an empty volume_id/,
    entry: 'An answer without a volume, or with an empty volume id',
  },
];

/** Differences on purpose for refusals and deletions. */
export const ofOutcomes: readonly KnownDifference[] = [
  {
    scenario: /^clone-/,
    where: /the PVC DataSource source must have a status of Bound. {2}Got (\{|Pending|Lost)/,
    entry: 'A clone source that is not bound',
  },
  {
    scenario: 'create-invalidargument-once',
    where: /^(end (claims|volumes) |events Normal ProvisioningSucceeded )/,
    entry: 'Infeasible requests (InvalidArgument)',
  },
  {
    scenario: 'del-secret-gone',
    where: /^(end volumes |calls DeleteVolume |events Warning VolumeFailedDelete )/,
    entry: 'The secret of a deletion is gone',
  },
];

/** Differences on purpose for answers about topology. */
export const ofTopology: readonly KnownDifference[] = [
  {
    scenario: /^answer-(all-empty|invalid)$/,
    where: /^events Warning ProvisioningFailed .* its PersistentVolume could not be written/,
    entry: 'The API server refuses the PV',
  },
];

/** Differences on purpose for CSIStorageCapacity objects. */
export const ofCapacity: readonly KnownDifference[] = [
  {
    scenario: /^cap-alone-(no-keys|some-keys|plain|plain-bound)$/,
    where: /^(provisioned|end) capacities /,
    entry: 'A driver without topology keys',
  },
];

/** Differences on purpose for the zones of a driver that replaced an in-tree plug-in. */
export function onPurposeInZones(driver: string): readonly KnownDifference[] {
  if (driver !== 'pd.csi.storage.gke.io') return [];
  return [
    {
      scenario: 'zone-regions',
      where: /^events Warning VolumeFailedDelete .* multiple or no regions gotten from zones/,
      entry: 'A disk of GCE in zones of several regions',
    },
  ];
}

/** Differences on purpose without a feature gate. */
export const ofFlags: readonly KnownDifference[] = [
  {
    scenario: 'flag-vac-off',
    where: new RegExp(
      '^((provisioned|end) volumes |calls CreateVolume |events (Normal ' +
        'ProvisioningSucceeded|Warning ProvisioningFailed) )',
    ),
    entry: 'The gate VolumeAttributesClass is off and a claim names one',
  },
];

/** Differences on purpose for drivers that replaced an in-tree plug-in.
 * @param scenarios the scenarios that are played; others can't differ */
export function onPurposeInMigration(
  scenarios: readonly { readonly name: string }[],
): readonly KnownDifference[] {
  const untranslatable = ['mig-untranslatable', 'zone-bad'].map((scenario) => ({
    scenario,
    where: /^(calls DeleteVolume |events Warning ProvisioningFailed )/,
    entry: 'A migrated class whose new PV has no in-tree form',
  }));
  return [
    ...onPurpose,
    ...untranslatable.filter(({ scenario }) => scenarios.some(({ name }) => name === scenario)),
  ];
}
