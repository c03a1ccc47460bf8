import { describeDifferential } from '../../harness/differential/suite.ts';
import { deployment, NODES, notImmediate } from './scenarios/nodes/deployment.ts';
import { onPurpose } from './scenarios/on-purpose.ts';

const FLAGS = [
  '--node-deployment',
  '--node-deployment-base-delay=500ms',
  '--node-deployment-max-delay=2s',
];

describeDifferential(
  [
    {
      name: 'a driver on each node',
      flags: FLAGS,
      hasTopology: true,
      nodes: NODES,
      scenarios: deployment,
      known: onPurpose,
    },
    {
      name: 'a driver on each node, without choosing nodes',
      flags: [...FLAGS, '--node-deployment-immediate-binding=false'],
      hasTopology: true,
      nodes: NODES,
      scenarios: notImmediate,
      known: onPurpose,
    },
  ],
  process.env,
);
