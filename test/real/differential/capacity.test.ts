import { POLL_MS } from '../../harness/differential/capacity-objects.ts';
import { describeDifferential } from '../../harness/differential/suite.ts';
import { objects } from './scenarios/capacity/objects.ts';
import { alone, ofImmediate, refresh, withoutTopology } from './scenarios/capacity/refresh.ts';
import { ofCapacity, onPurpose } from './scenarios/on-purpose.ts';

const FLAGS = [
  '--enable-capacity',
  '--kube-api-capacity-qps=500',
  '--kube-api-capacity-burst=1000',
];
const POLLED = `--capacity-poll-interval=${POLL_MS}ms`;
const NOT_POLLED = '--capacity-poll-interval=1h';

/** The scenarios' classes and nodes multiply, so few are played at once. */
const capacity = { hasTopology: true, hasPod: true, concurrency: 8 };

describeDifferential(
  [
    {
      ...capacity,
      name: 'capacity',
      flags: [...FLAGS, POLLED],
      scenarios: objects,
      known: [],
    },
    {
      ...capacity,
      name: 'capacity without polls',
      flags: [...FLAGS, NOT_POLLED, '--capacity-ownerref-level=2', '--capacity-threads=3'],
      scenarios: refresh,
      known: onPurpose,
    },
    {
      ...capacity,
      name: 'capacity of the whole cluster',
      flags: [...FLAGS, POLLED, '--capacity-ownerref-level=0'],
      concurrency: 1,
      scenarios: alone,
      known: ofCapacity,
    },
    {
      ...capacity,
      name: 'capacity of classes that do not wait',
      flags: [...FLAGS, POLLED, '--capacity-for-immediate-binding', '--capacity-ownerref-level=-1'],
      scenarios: ofImmediate,
      known: [],
    },
    {
      ...capacity,
      name: 'capacity of a driver without topology',
      hasTopology: false,
      flags: [...FLAGS, POLLED],
      concurrency: 1,
      scenarios: withoutTopology,
      known: [...onPurpose, ...ofCapacity],
    },
  ],
  process.env,
);
