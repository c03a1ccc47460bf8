import { describeDifferential } from '../../harness/differential/suite.ts';
import { ofOthers } from './scenarios/migration.ts';
import { onPurposeInMigration } from './scenarios/on-purpose.ts';

describeDifferential(
  ofOthers.map(({ driver, inTree, scenarios }) => ({
    name: `${driver} for ${inTree}`,
    driverName: driver,
    scenarios,
    known: onPurposeInMigration(scenarios),
  })),
  process.env,
);
