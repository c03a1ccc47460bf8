import { describeDifferential } from '../../harness/differential/suite.ts';
import { zonal } from './scenarios/migration-zones.ts';
import { onPurposeInMigration, onPurposeInZones } from './scenarios/on-purpose.ts';

describeDifferential(
  zonal.map(({ driver, inTree, scenarios }) => ({
    name: `zones of ${driver} for ${inTree}`,
    driverName: driver,
    hasTopology: true,
    scenarios,
    known: [...onPurposeInMigration(scenarios), ...onPurposeInZones(driver)],
  })),
  process.env,
);
