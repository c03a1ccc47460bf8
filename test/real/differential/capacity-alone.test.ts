import { CAPACITY_FLAGS, POLLED } from '../../harness/differential/capacity-objects.ts';
import { describeDifferential } from '../../harness/differential/suite.ts';
import { alone, ofImmediate, withoutTopology } from './scenarios/capacity/refresh.ts';
import { ofCapacity, onPurpose } from './scenarios/on-purpose.ts';

const capacity = { hasTopology: true, hasPod: true };
const flags = [...CAPACITY_FLAGS, POLLED];

describeDifferential(
  [
    {
      ...capacity,
      name: 'capacity of the whole cluster',
      flags: [...flags, '--capacity-ownerref-level=0'],
      concurrency: 1,
      scenarios: alone,
      known: ofCapacity,
    },
    {
      ...capacity,
      name: 'capacity of classes that do not wait',
      flags: [...flags, '--capacity-for-immediate-binding', '--capacity-ownerref-level=-1'],
      scenarios: ofImmediate,
      known: [],
    },
    {
      ...capacity,
      name: 'capacity of a driver without topology',
      hasTopology: false,
      flags,
      concurrency: 1,
      scenarios: withoutTopology,
      known: [...onPurpose, ...ofCapacity],
    },
  ],
  process.env,
);
