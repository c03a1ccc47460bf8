import { describeDifferential } from '../../harness/differential/suite.ts';
import { ofTopology, onPurpose } from './scenarios/on-purpose.ts';
import { allowedOnly } from './scenarios/topology/allowed.ts';
import { answers } from './scenarios/topology/answers.ts';
import { gateOff, immediate, immediateOff } from './scenarios/topology/immediate.ts';
import { late } from './scenarios/topology/late.ts';

const topology = { hasTopology: true, known: onPurpose };
/** For scenarios that share all nodes of the cluster. */
const oneByOne = { ...topology, concurrency: 1 };

describeDifferential(
  [
    {
      ...topology,
      name: 'topology',
      scenarios: [...late('late'), ...allowedOnly('allowed'), ...answers],
      known: [...onPurpose, ...ofTopology],
    },
    {
      ...topology,
      name: 'strict topology',
      flags: ['--strict-topology', '--immediate-topology=false'],
      scenarios: [...late('strict'), ...allowedOnly('strict-in')],
    },
    { ...oneByOne, name: 'topology of the whole cluster', scenarios: immediate },
    {
      ...oneByOne,
      name: 'no topology for claims that do not wait',
      flags: ['--immediate-topology=false'],
      scenarios: immediateOff,
    },
    {
      ...oneByOne,
      name: 'the feature gate Topology is off',
      flags: ['--feature-gates=Topology=false'],
      scenarios: gateOff,
    },
  ],
  process.env,
);
