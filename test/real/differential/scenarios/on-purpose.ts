import type { KnownDifference } from '../../../harness/differential/differences.ts';

/** Where sutler does better, whatever the flags. */
export const onPurpose: readonly KnownDifference[] = [
  {
    scenario: /^(?!slow-|more-timeout)/,
    where: /^events Normal Provisioning \S+ \S+: External provisioner is provisioning/,
    row: '`Provisioning` event',
  },
];

/** Where it does better with claims, and with what a driver answers. */
export const ofClaims: readonly KnownDifference[] = [
  {
    scenario: 'given-no-id',
    where: /^events Warning ProvisioningFailed .* with an empty volume_id/,
    row: 'answer without a volume, or with an empty volume id',
  },
];

/** Where it does better with refusals and deletions. */
export const ofOutcomes: readonly KnownDifference[] = [
  {
    scenario: /^clone-/,
    where: /the PVC DataSource source must have a status of Bound. {2}Got (\{|Pending|Lost)/,
    row: 'cloning source that is not bound',
  },
  {
    scenario: 'create-invalidargument-once',
    where: /^(end (claims|volumes) |events Normal ProvisioningSucceeded )/,
    row: 'infeasible requests (InvalidArgument)',
  },
  {
    scenario: 'del-secret-gone',
    where: /^(end volumes |calls DeleteVolume |events Warning VolumeFailedDelete )/,
    row: 'deletion whose secret is gone',
  },
];

/** Where it does better with a gate that is off. */
export const ofFlags: readonly KnownDifference[] = [
  {
    scenario: 'flag-vac-off',
    where:
      /^((provisioned|end) volumes |calls CreateVolume |events (Normal ProvisioningSucceeded|Warning ProvisioningFailed) )/,
    row: 'gate VolumeAttributesClass off, and a claim names one',
  },
];

/** Where it does better with drivers that took over from an in-tree plug-in.
 * @param scenarios that are played: what is not can not differ */
export function onPurposeInMigration(
  scenarios: readonly { readonly name: string }[],
): readonly KnownDifference[] {
  const untranslatable: KnownDifference = {
    scenario: 'mig-untranslatable',
    where: /^(calls DeleteVolume |events Warning ProvisioningFailed )/,
    row: 'a migrated class whose new PV has no in-tree form',
  };
  return [
    ...onPurpose,
    ...(scenarios.some(({ name }) => name === untranslatable.scenario) ? [untranslatable] : []),
  ];
}
