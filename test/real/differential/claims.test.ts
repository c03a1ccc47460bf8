import { describeDifferential } from '../../harness/differential/suite.ts';
import { access } from './scenarios/access.ts';
import { eligibility } from './scenarios/eligibility.ts';
import { ofClaims, onPurpose } from './scenarios/on-purpose.ts';
import { parameters } from './scenarios/parameters.ts';
import { secrets } from './scenarios/secrets.ts';
import { sizes } from './scenarios/sizes.ts';

describeDifferential(
  [
    {
      name: 'claims',
      scenarios: [...parameters, ...secrets, ...access, ...sizes, ...eligibility],
      known: [...onPurpose, ...ofClaims],
    },
  ],
  process.env,
);
