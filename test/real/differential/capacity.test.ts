import { CAPACITY_FLAGS, POLLED } from '../../harness/differential/capacity-objects.ts';
import { describeDifferential } from '../../harness/differential/suite.ts';
import { objects } from './scenarios/capacity/objects.ts';
import { refresh } from './scenarios/capacity/refresh.ts';
import { onPurpose } from './scenarios/on-purpose.ts';

/** The scenarios' classes and nodes multiply, so few are played at once. */
const capacity = { hasTopology: true, hasPod: true, concurrency: 8 };

describeDifferential(
  [
    {
      ...capacity,
      name: 'capacity',
      flags: [...CAPACITY_FLAGS, POLLED],
      scenarios: objects,
      known: [],
    },
    {
      ...capacity,
      name: 'capacity without polls',
      flags: [
        ...CAPACITY_FLAGS,
        '--capacity-poll-interval=1h',
        '--capacity-ownerref-level=2',
        '--capacity-threads=3',
      ],
      scenarios: refresh,
      known: onPurpose,
    },
  ],
  process.env,
);
