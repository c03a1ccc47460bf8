import { describeDifferential } from '../../harness/differential/suite.ts';
import { ofTopology, onPurpose } from './scenarios/on-purpose.ts';
import { allowedOnly } from './scenarios/topology/allowed.ts';
import { answers } from './scenarios/topology/answers.ts';
import { late } from './scenarios/topology/late.ts';

describeDifferential(
  [
    {
      name: 'topology',
      hasTopology: true,
      scenarios: [...late('late'), ...allowedOnly('allowed'), ...answers],
      known: [...onPurpose, ...ofTopology],
    },
    {
      name: 'strict topology',
      flags: ['--strict-topology', '--immediate-topology=false'],
      hasTopology: true,
      scenarios: [...late('strict'), ...allowedOnly('strict-in')],
      known: onPurpose,
    },
  ],
  process.env,
);
