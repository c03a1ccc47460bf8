import { describeDifferential } from '../../harness/differential/suite.ts';
import { crossNamespace } from './scenarios/cross-namespace.ts';
import { edits, LONG_WAITS } from './scenarios/edits.ts';
import { fewCapabilities } from './scenarios/few-capabilities.ts';
import { FLAGS, MORE_FLAGS, flags, moreFlags } from './scenarios/flags.ts';
import { ofFlags, onPurpose } from './scenarios/on-purpose.ts';

describeDifferential(
  [
    {
      name: 'other flags',
      flags: FLAGS,
      uuidLength: 12,
      capabilities: [
        'CREATE_DELETE_VOLUME',
        'CREATE_DELETE_SNAPSHOT',
        'CLONE_VOLUME',
        'MODIFY_VOLUME',
        'SINGLE_NODE_MULTI_WRITER',
      ],
      serverGates: ['CrossNamespaceVolumeDataSource'],
      scenarios: [...flags, ...crossNamespace],
      known: [...onPurpose, ...ofFlags],
    },
    {
      name: 'more flags',
      flags: MORE_FLAGS,
      serverGates: ['CrossNamespaceVolumeDataSource'],
      scenarios: moreFlags,
      known: onPurpose,
    },
    { name: 'long waits', flags: LONG_WAITS, scenarios: edits, known: onPurpose },
    {
      name: 'a driver of few capabilities',
      capabilities: ['CREATE_DELETE_VOLUME'],
      scenarios: fewCapabilities,
      known: onPurpose,
    },
  ],
  process.env,
);
