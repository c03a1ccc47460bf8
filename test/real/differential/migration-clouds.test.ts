import { describeDifferential } from '../../harness/differential/suite.ts';
import { ofClouds } from './scenarios/migration.ts';
import { onPurposeInMigration } from './scenarios/on-purpose.ts';

describeDifferential(
  ofClouds.map(({ driver, inTree, scenarios }) => ({
    name: `${driver} for ${inTree}`,
    driverName: driver,
    scenarios,
    known: onPurposeInMigration(scenarios),
  })),
  process.env,
);
