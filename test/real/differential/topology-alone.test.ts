import { describeDifferential } from '../../harness/differential/suite.ts';
import { onPurpose } from './scenarios/on-purpose.ts';
import { gateOff, immediate, immediateOff } from './scenarios/topology/immediate.ts';

/** The scenarios share all nodes of the cluster. */
const oneByOne = { hasTopology: true, concurrency: 1, known: onPurpose };

describeDifferential(
  [
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
