import { defineFlags } from '#src/runtime/flags.ts';
import { processFlags } from '#src/runtime/process-flags.ts';

/** One line for --help. */
export const summary = 'compares calls through the gateway with calls on the driver’s socket';

/** Every flag of bench:gateway. */
export const flags = defineFlags({
  ...processFlags,
  calls: {
    type: 'int',
    default: 100_000,
    min: 100,
    help: 'Calls for measuring memory and CPU time, --concurrency of them at once.',
  },
  'idle-calls': {
    type: 'int',
    default: 2_000,
    min: 50,
    help: 'Calls made one at a time, alternating between the socket and the gateway.',
  },
  concurrency: { type: 'int', default: 20, min: 1, help: 'Calls under way at once.' },
  tls: {
    type: 'bool',
    default: false,
    help: 'Reach the gateway by TCP with mutual TLS; otherwise by a unix socket.',
  },
  'node-flags': {
    type: 'string',
    default: '--max-semi-space-size=1 --max-old-space-size=320',
    help: 'Node flags for the gateway, separated by blanks. The default is that of k8s/gateway.',
  },
});
