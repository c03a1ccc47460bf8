import { defineFlags, type Flags, UsageError } from '../runtime/flags.ts';

/** Where each node has a driver and a process. */
export const ownNodeFlags = defineFlags({
  'node-deployment': {
    type: 'bool',
    default: false,
    help:
      'Serves the node that the variable NODE_NAME names, and no other: the driver and sutler all ' +
      'run on each node.',
    upstream: 'same',
  },
});

/** The node that this process serves alone; undefined if it serves all.
 * @throws UsageError where the variable is not set */
export function ownNode(
  { nodeDeployment }: Pick<Flags<typeof ownNodeFlags>, 'nodeDeployment'>,
  { NODE_NAME: node = '' }: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (!nodeDeployment) return undefined;
  if (node === '')
    throw new UsageError(
      '--node-deployment: the NODE_NAME environment variable must be set, to the name of the node',
    );
  return node;
}
