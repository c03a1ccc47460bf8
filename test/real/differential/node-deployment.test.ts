import { describeDifferential, type DifferentialSuite } from '../../harness/differential/suite.ts';
import { deployment, NODES, notImmediate } from './scenarios/nodes/deployment.ts';
import { onPurpose } from './scenarios/on-purpose.ts';

const FLAGS = [
  '--node-deployment',
  '--node-deployment-base-delay=500ms',
  '--node-deployment-max-delay=2s',
];

/** Chance decides which of upstream's nodes asks its driver first, and whether others still do. */
const local: Omit<DifferentialSuite, 'name' | 'scenarios' | 'known'> = {
  hasTopology: true,
  nodes: NODES,
  ignoredCalls: ['GetCapacity'],
};

describeDifferential(
  [
    {
      ...local,
      name: 'a driver on each node',
      flags: FLAGS,
      scenarios: deployment,
      known: onPurpose,
    },
    {
      ...local,
      name: 'a driver on each node, without immediate binding',
      flags: [...FLAGS, '--node-deployment-immediate-binding=false'],
      scenarios: notImmediate,
      known: onPurpose,
    },
  ],
  process.env,
);
