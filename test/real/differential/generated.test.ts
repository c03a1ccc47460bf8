import type { Scenario } from '../../harness/differential/scenario.ts';
import { describeDifferential, type DifferentialSuite } from '../../harness/differential/suite.ts';
import { FLAGS } from './scenarios/flags.ts';
import { answerParts } from './scenarios/generated/answers.ts';
import { claimParts } from './scenarios/generated/claims.ts';
import { Dice, scenarioOf } from './scenarios/generated/part.ts';
import { onPurpose } from './scenarios/on-purpose.ts';

/** Random scenarios: mostly valid ones, the same for the same seed. */
const generated = (from: number, many: number): readonly Scenario[] =>
  Array.from({ length: many }, (_, index) => {
    const dice = new Dice(from * 1_000_003 + index);
    return scenarioOf(`gen-${from}-${index}`, [...claimParts(dice), ...answerParts(dice)]);
  });

/** DIFFERENTIAL_SEED selects other scenarios, DIFFERENTIAL_COUNT their number: that many with the
 * default flags, and a third of them with each other set of flags. */
const seed = Number(process.env['DIFFERENTIAL_SEED'] ?? 1);
const count = Number(process.env['DIFFERENTIAL_COUNT'] ?? 24);
const few = Math.ceil(count / 3);

const suites: readonly DifferentialSuite[] = [
  { name: `chance ${seed}`, scenarios: generated(seed, count), known: onPurpose },
  {
    name: `chance ${seed + 1}, other flags`,
    // Not with the feature gate off, which would hide everything else about claims that name
    // a VolumeAttributesClass.
    flags: FLAGS.map((flag) => flag.replace(',VolumeAttributesClass=false', '')),
    uuidLength: 12,
    capabilities: [
      'CREATE_DELETE_VOLUME',
      'CREATE_DELETE_SNAPSHOT',
      'CLONE_VOLUME',
      'MODIFY_VOLUME',
      'SINGLE_NODE_MULTI_WRITER',
    ],
    serverGates: ['CrossNamespaceVolumeDataSource'],
    scenarios: generated(seed + 1, few),
    known: onPurpose,
  },
  {
    name: `chance ${seed + 2}, flags of topology with a driver that has none`,
    flags: [
      '--immediate-topology=false',
      '--strict-topology',
      '--feature-gates=Topology=true',
      '--default-fstype=ext4',
      '--volume-name-prefix=x.y',
      '--volume-name-uuid-length=32',
      '--extra-create-metadata',
    ],
    uuidLength: 32,
    scenarios: generated(seed + 2, few),
    known: onPurpose,
  },
  {
    name: `chance ${seed + 3}, few capabilities`,
    flags: ['--feature-gates=Topology=false', '--controller-publish-readonly'],
    capabilities: ['CREATE_DELETE_VOLUME'],
    scenarios: generated(seed + 3, few),
    known: onPurpose,
  },
];

describeDifferential(suites, process.env);
