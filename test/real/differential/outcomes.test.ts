import { describeDifferential } from '../../harness/differential/suite.ts';
import { attributesClasses } from './scenarios/attributes-classes.ts';
import { clones } from './scenarios/clones.ts';
import { codes } from './scenarios/codes.ts';
import { deletion } from './scenarios/deletion.ts';
import { onPurpose, ofOutcomes } from './scenarios/on-purpose.ts';
import { slow } from './scenarios/slow.ts';
import { snapshots } from './scenarios/snapshots.ts';
import { staticVolumes } from './scenarios/static-volumes.ts';

describeDifferential(
  [
    {
      name: 'codes, sources and deletion',
      scenarios: [
        ...codes,
        ...slow,
        ...snapshots,
        ...clones,
        ...attributesClasses,
        ...deletion,
        ...staticVolumes(),
      ],
      known: [...onPurpose, ...ofOutcomes],
    },
  ],
  process.env,
);
