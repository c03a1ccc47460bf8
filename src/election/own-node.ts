import { defineFlags, type Flags, UsageError } from '../runtime/flags.ts';

/** The flag for drivers that run on each node. */
export const ownNodeFlags = defineFlags({
  'node-deployment': {
    type: 'bool',
    default: false,
    help:
      'Serves only the node that the variable NODE_NAME names: for a driver that runs on each ' +
      'node, with sutler all beside it.',
    upstream: 'same',
  },
});

/** The only node that this process serves; undefined for all.
 * @throws UsageError if the variable is not set */
export function ownNode(
  { nodeDeployment }: Pick<Flags<typeof ownNodeFlags>, 'nodeDeployment'>,
  { NODE_NAME: node = '' }: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (!nodeDeployment) return undefined;
  if (node === '')
    throw new UsageError(
      '--node-deployment: set the NODE_NAME environment variable to the name of the node',
    );
  return node;
}
